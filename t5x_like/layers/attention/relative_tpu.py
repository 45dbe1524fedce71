"""Attention by content, position and segment by our Pallas kernel: over a mesh, with its gradient.

Suffixes: B batch, L positions of a row, S queries, Q of them that ask, T keys, C = T + L relative
positions, F directions, N parts of the batch, H heads, K d_kv, J = H * K joined heads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding, PartitionSpec

from t5x_like.core.partitioning import active_layout
from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.kernels import kernel_gradient, relative_kernel
from t5x_like.layers.attention.kernels.kernel_mesh import (
    Gradient,
    Split,
    over_mesh,
    parts_of_queries,
    seed_words,
    usable_vmem,
)
from t5x_like.layers.attention.kernels.kernel_parts import LANES, lanes_of_block, unsuited_width
from t5x_like.layers.attention.kernels.relative_step import HIDDEN, OTHER, SEEN, Operands, Settings
from t5x_like.layers.basics.dropout import Dropping

_ROWS = 16
"""Rows of a tile in the chip's memory, of 16-bit floats."""


class Relative(NamedTuple):
    """The operands of relative attention beside queries, keys and values.

    Attributes:
      keys: [N, F, C, J], projected vectors of relative positions (`copies`), which queries are
        multiplied with; row c is for a key T - c before a query.
      backward: bool [B], true for rows that look at the second direction; None: none does.
      vectors: float32 [4, J]; `relative_step.Operands.vectors`.
      mask: bool [B|1, 1, Q|1, T], or None.
      differs: bool [B, 1, Q, T], true where segments differ, or None.
      positions: int32 [B|1, Q], the queries' positions in the row; None: they are the whole row.
      pairs: what `pairs_of` gives; None: it is not computed yet.
      queries: [N, 1, C, J], such vectors that keys are multiplied with; row c is for a query
        c - T after a key; None: none are.
    """

    keys: jax.Array
    backward: jax.Array | None
    vectors: jax.Array
    mask: jax.Array | None
    differs: jax.Array | None
    positions: jax.Array | None
    pairs: jax.Array | None = None
    queries: jax.Array | None = None


def relative_tpu(
    q_BSJ: jax.Array,
    memory: KeysValues,
    relative: Relative,
    *,
    queries: int,
    factor: float,
    drop: Dropping | None,
    interpret: bool = False,
) -> jax.Array:
    """Values [B, Q, J] for the first Q queries of S, which are multiplied with `factor`.

    No array [B, H, Q, T] is ever in the device's main memory. With `interpret` it runs anywhere,
    slowly.

    Raises:
      ValueError: it cannot compute these shapes (`unsuited`).
    """
    if reason := unsuited(queries, memory, drop, both=relative.queries is not None):
        raise ValueError(f"relative attention on TPUs: {reason}; use attention_kernels.plain")
    _, keys, heads, width = memory.keys.shape
    length = relative.keys.shape[2] - keys
    more, more_rows = -keys % LANES, -length % LANES
    joined = (x.reshape(*x.shape[:2], heads * width) for x in memory)
    k, v = (jnp.pad(x, ((0, 0), (0, more), (0, 0))) for x in joined)
    # The kernel reads whole tiles, or a whole array; devices split the queries that ask.
    split = functools.partial(parts_of_queries, len(q_BSJ), heads=heads)
    if queries % _ROWS or split(q_BSJ.shape[1]) > 1 or split(queries) > 1:
        q_BSJ = q_BSJ[:, :queries]
    parts = split(q_BSJ.shape[1])
    known, positions = relative.pairs, relative.positions
    pairs = pairs_of(relative.mask, relative.differs) if known is None else known
    if positions is None and parts > 1:
        positions = jnp.arange(queries)[None]
    direction_B = jnp.zeros(len(q_BSJ), jnp.int32)
    if relative.backward is not None:
        direction_B = relative.backward.astype(jnp.int32)
    operands = Operands(
        q_BSJ,
        k,
        v,
        r=_filled(relative.keys, more_rows, more),
        s=None if (s := relative.queries) is None else _filled(s, more - 1, more_rows + 1),
        vectors=relative.vectors.astype(jnp.float32),
        pairs=None if pairs is None else jnp.pad(pairs, ((0, 0), (0, 0), (0, more))),
        positions=None if positions is None else positions.astype(jnp.int32)[..., None],
        direction=direction_B,
        seed=seed_words(drop, heads=heads, queries=queries),
    )
    settings = Settings.of(
        width,
        drop,
        interpret=interpret,
        queries=queries // parts,
        factor=factor,
        keys=keys,
        masked=relative.mask is not None,
        segments=relative.differs is not None,
    )
    return _attend(operands, settings)


def _filled(x_NFCJ: jax.Array, before: int, after: int) -> jax.Array:
    """With so many more relative positions; -1: with one fewer."""
    edges = (0, 0, 0), (0, 0, 0), (before, after, 0), (0, 0, 0)
    return jax.lax.pad(x_NFCJ, jnp.zeros((), x_NFCJ.dtype), edges)


def unsuited(
    queries: int, memory: KeysValues, drop: Dropping | None, *, both: bool = False
) -> str | None:
    """Why the kernel cannot compute it; None if it can.

    `both`: whether keys, too, are multiplied with relative positions.
    """
    rows_of_batch, keys, heads, width = memory.keys.shape
    if reason := unsuited_width(width) or kernel_gradient.unsuited(None, drop):
        return reason
    queries //= parts_of_queries(rows_of_batch, queries, heads)
    lanes = lanes_of_block(heads * width, width)
    columns, at_once = keys + max(queries, LANES), LANES
    if both:
        columns, at_once = 2 * (keys + max(keys, LANES)), 2 * LANES
    # Rows of keys and relative positions with their gradients, twice; arrays of some queries.
    rows = 2 * lanes * (4 * 4 * keys + 3 * 4 * columns)
    if rows + 16 * 4 * at_once * keys + 2 * queries * keys > usable_vmem():
        return f"{queries} queries by {keys} keys do not fit the chip's memory"
    return None


def pairs_of(mask: jax.Array | None, differs: jax.Array | None) -> jax.Array | None:
    """Int8 [B|1, Q|1, T]: `relative_step.Operands.pairs`, not filled up; None if all are seen."""
    if mask is None and differs is None:
        return None
    seen = SEEN if differs is None else jnp.where(differs, OTHER, SEEN)
    pairs = seen if mask is None else jnp.where(mask, seen, HIDDEN)
    return jnp.asarray(pairs)[:, 0].astype(jnp.int8)


def copies(r_FCJ: jax.Array, *, batch_size: int) -> jax.Array:
    """[N, F, C, J]: one for each part of the batch on a mesh, with this part.

    So gradients of several streams are added before devices exchange them.
    """
    layout = active_layout()
    if layout is None:
        return r_FCJ[None]
    rows = layout.spec(("batch",), (batch_size,))[0]
    axes = (rows,) if isinstance(rows, str) else (rows or ())
    count = math.prod(layout.mesh.shape[axis] for axis in axes)
    heads = layout.spec(("joined_kv",), r_FCJ.shape[-1:])[0]
    r_NFCJ = jnp.broadcast_to(r_FCJ, (count, *r_FCJ.shape))
    sharding = NamedSharding(layout.mesh, PartitionSpec(rows, None, None, heads))
    return jax.lax.with_sharding_constraint(r_NFCJ, sharding)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _attend(operands: Operands, settings: Settings) -> jax.Array:
    return _over_mesh(relative_kernel.forward, operands, settings)


def _attend_forward(
    operands: Operands, settings: Settings
) -> tuple[jax.Array, tuple[Operands, jax.Array]]:
    values = _attend(operands, settings)
    return values, (operands, checkpoint_name(values, "attended"))


def _attend_backward(
    settings: Settings, saved: tuple[Operands, jax.Array], g: jax.Array
) -> tuple[Operands]:
    operands, values = saved
    found = _over_mesh(relative_kernel.backward, operands, settings, values, g)
    dq, dk, dv, dr, dvectors, *ds = found
    dq = jnp.pad(dq, ((0, 0), (0, operands.q.shape[1] - dq.shape[1]), (0, 0)))
    none = operands._replace(**dict.fromkeys(Operands._fields))
    of_r, *of_s = (x.astype(operands.r.dtype) for x in (dr, *ds))
    return (none._replace(q=dq, k=dk, v=dv, r=of_r, s=of_s[0] if of_s else None, vectors=dvectors),)


_attend.defvjp(_attend_forward, _attend_backward)


def _over_mesh(fn: Callable[..., Any], operands: Operands, settings: Settings, *more: Any) -> Any:
    def specs(split: Split) -> tuple[Operands, Sequence[Gradient]]:
        pairs = operands.pairs
        of_each = split.queries if pairs is not None and pairs.shape[1] > 1 else None
        of_operands = Operands(
            q=split.of_q,
            k=split.of_keys,
            v=split.of_keys,
            r=PartitionSpec(split.rows, None, None, split.heads),
            s=None if operands.s is None else PartitionSpec(split.rows, None, None, split.heads),
            vectors=PartitionSpec(None, split.heads),
            pairs=split.of_rows(pairs, of_each),
            positions=split.of_rows(operands.positions, split.queries),
            direction=PartitionSpec(split.rows),
            seed=PartitionSpec(),
        )
        of_keys = Gradient(split.of_keys, summed=split.queries)
        of_r = Gradient(of_operands.r, summed=split.queries)
        return of_operands, [
            Gradient(split.of_q),
            of_keys,
            of_keys,
            of_r,
            Gradient(of_operands.vectors, summed=(*split.rows, *split.queries)),
            *([] if operands.s is None else [of_r]),
        ]

    return over_mesh(fn, settings, operands, more, specs=specs)

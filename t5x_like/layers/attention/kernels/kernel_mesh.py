"""Our Pallas kernels of attention over a mesh: each device has own rows, queries and heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from t5x_like.core.devices.tpus import CHIPS, chip_of
from t5x_like.core.partitioning import Layout, active_device, active_layout
from t5x_like.layers.basics.dropout import Dropping


class Split(NamedTuple):
    """The mesh axes that split rows, queries, and heads."""

    rows: tuple[str, ...]
    queries: tuple[str, ...]
    heads: tuple[str, ...]

    @classmethod
    def of(cls, layout: Layout, rows: int, queries: int, heads: int) -> Split:
        """How a layout splits so many of them."""
        spec = layout.spec(("batch", "length", "heads"), (rows, queries, heads))
        return cls(*((axes,) if isinstance(axes, str) else tuple(axes or ()) for axes in spec))

    @property
    def of_q(self) -> PartitionSpec:
        """Of an array [B, L, J]."""
        return PartitionSpec(self.rows, self.queries, self.heads)

    @property
    def of_keys(self) -> PartitionSpec:
        """Of an array [B, M, J]: each query needs every key."""
        return PartitionSpec(self.rows, None, self.heads)

    def of_rows(self, x: jax.Array | None, *rest: tuple[str, ...] | None) -> PartitionSpec | None:
        """Of an array whose first dimension is B or 1; None if there is none."""
        return None if x is None else PartitionSpec(self.rows if len(x) > 1 else None, *rest)


class Gradient(NamedTuple):
    """How a gradient is split, and the mesh axes whose devices have other parts of its sum."""

    spec: PartitionSpec
    summed: tuple[str, ...] = ()


def over_mesh(
    fn: Callable[..., Any],
    settings: Any,
    operands: Any,
    values_and_gradient: Sequence[jax.Array],
    *,
    specs: Callable[[Split], tuple[Any, Sequence[Gradient]]],
) -> Any:
    """A kernel over the active mesh: each device computes its own rows, queries and heads.

    Args:
      fn: the kernel's forward pass, or its backward pass.
      settings: the first argument of `fn`; has the `width` of a head.
      operands: the second: a NamedTuple with arrays `q` and `seed`.
      values_and_gradient: the rest, split as the queries are; empty in the forward pass.
      specs: how the operands are split, `q` in each of its dimensions, and the gradients that the
        backward pass returns.
    """
    layout = active_layout()
    if layout is None or layout.mesh.size == 1:
        return fn(settings, operands, *values_and_gradient)
    rows, queries, joined = operands.q.shape
    of_operands, gradients = specs(Split.of(layout, rows, queries, joined // settings.width))

    def local(operands: Any, *more: jax.Array) -> Any:
        seed = _own_seed(operands.seed, operands.q, of_operands.q, width=settings.width)
        outputs = fn(settings, operands._replace(seed=seed), *more)
        if not more:
            return outputs
        return [
            jax.lax.psum(output, gradient.summed) if gradient.summed else output
            for output, gradient in zip(outputs, gradients, strict=True)
        ]

    return jax.shard_map(
        local,
        mesh=layout.mesh,
        in_specs=(of_operands, *[of_operands.q for _ in values_and_gradient]),
        out_specs=[gradient.spec for gradient in gradients]
        if values_and_gradient
        else of_operands.q,
        check_vma=False,
    )(operands, *values_and_gradient)


def seed_words(drop: Dropping | None, *, heads: int, queries: int) -> jax.Array:
    """`kernel_parts.Draws.seed` of a device that has the first row, head and query."""
    words = jnp.zeros(2, jnp.uint32) if drop is None else jax.random.key_data(drop.key)[:2]
    words = jax.lax.bitcast_convert_type(words, jnp.int32)
    return jnp.concatenate([words, jnp.array([0, 0, heads, 0, queries], jnp.int32)])


def _own_seed(seed: jax.Array, q_BLJ: jax.Array, split: PartitionSpec, *, width: int) -> jax.Array:
    """`seed` with the numbers of a device's first row, head and query; `q_BLJ` is its own."""
    rows, queries, joined = q_BLJ.shape
    first = [
        jax.lax.axis_index(axes) * count if axes else 0
        for axes, count in zip(
            (split[0], split[2], split[1]), (rows, joined // width, queries), strict=True
        )
    ]
    return seed.at[jnp.array([2, 3, 5])].set(jnp.stack(first).astype(jnp.int32))


def parts_of_queries(rows: int, queries: int, heads: int) -> int:
    """Among how many devices of the active mesh the queries of a row are split."""
    if (layout := active_layout()) is None:
        return 1
    axes = Split.of(layout, rows, queries, heads).queries
    return math.prod(layout.mesh.shape[axis] for axis in axes)


def usable_vmem() -> int:
    """Bytes of the chip's memory that a kernel may take."""
    return int((chip_of(active_device().device_kind) or CHIPS["v5e"]).vmem_bytes)

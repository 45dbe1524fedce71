"""Attention by content, position and segment as a Pallas kernel for TPUs.

A query's products with the vectors of relative positions are shifted to the keys that they are for
in the chip's memory (`relative_shift`), for 128 queries at a time; no array of queries times keys,
nor of queries times relative positions, leaves it. The rest is as in `pallas_kernel`.

Suffixes: B batch, Q queries, R of them at once, T keys, C relative positions, F directions,
J joined heads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from t5x_like.layers.attention import kernel_parts
from t5x_like.layers.attention.kernel_parts import (
    MASKED,
    VMEM,
    Draws,
    Head,
    dropped,
    head_blocks,
    lanes_of_step,
    product,
)
from t5x_like.layers.attention.relative_shift import Window, windows

SEEN, DIFFERS = 1, 2
"""Bits of `pairs`: a query sees a key; their segments differ."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(kernel_parts.Settings):
    """What stays the same from call to call.

    Attributes:
      factor: what queries are multiplied with.
      keys: how many of the T keys there are; the others fill up.
      masked: whether `pairs` tells what a query sees, and
      segments: which segments differ.
    """

    factor: float
    keys: int
    masked: bool
    segments: bool


class Operands(NamedTuple):
    """Arrays, or in the kernel their blocks; T, and C - T, are multiples of 128.

    `q` is [B, Q, J], `k` and `v` are [B, T, J]; `r` is [F, C, J], of which int32 `direction`, [B],
    chooses one for each row. `vectors`, float32 [4, J], are added to queries that look at content,
    at positions and at segments; the last is what the third are multiplied with where segments
    differ. `pairs` is int8 [B|1, Q, T]; `positions`, int32 [B, Q, 1], are those of the queries;
    None where they are the whole row. `seed` is that of `kernel_parts.Draws`.
    """

    q: Any
    k: Any
    v: Any
    r: Any
    vectors: Any
    pairs: Any
    positions: Any
    direction: Any
    seed: Any


def forward(settings: Settings, operands: Operands) -> jax.Array:
    """Values [B, Q, J], in the dtype of `q`."""
    grid = _Grid(settings, operands)

    def kernel(*refs: Any) -> None:
        *inputs, o = refs
        _forward(settings, grid.named(inputs), o)

    return grid.call(kernel, (), [operands.q])[0]


def backward(
    settings: Settings, operands: Operands, values: jax.Array, g: jax.Array
) -> list[jax.Array]:
    """The gradients of q, k and v; and of r and vectors, float32 sums over rows.

    Args:
      settings, operands: those of `forward`.
      values: what it returned, and
      g: the gradient of this.
    """
    grid = _Grid(settings, operands)

    def kernel(*refs: Any) -> None:
        inputs, (values, g, *outputs) = refs[: grid.number], refs[grid.number :]
        _backward(settings, grid.named(inputs), (values, g), outputs)

    sums = [x.astype(jnp.float32) for x in (operands.r, operands.vectors)]
    return grid.call(kernel, (values, g), [operands.q, operands.k, operands.v, *sums])


class _Grid:
    """Steps over groups of heads, and within each over rows: so sums over rows stay."""

    def __init__(self, settings: Settings, operands: Operands) -> None:
        self.settings, self.operands = settings, operands
        rows, queries, joined = operands.q.shape
        keys = operands.k.shape[1]
        self.lanes = lanes_of_step(joined, settings.width, queries * keys)
        self.grid = (joined // self.lanes, rows)
        self.given = [x for x in operands[:7] if x is not None]
        self.number = 2 + len(self.given)

    def spec(self, x: jax.Array) -> pl.BlockSpec:
        """How an array is cut: one of `Operands`, or a gradient."""
        if x.ndim == 2:
            return pl.BlockSpec((x.shape[0], self.lanes), lambda h, b, *_: (0, h))
        if not jnp.issubdtype(x.dtype, jnp.floating):
            own_row = x.shape[0] > 1
            return pl.BlockSpec((1, *x.shape[1:]), lambda h, b, *_: (b if own_row else 0, 0, 0))
        return pl.BlockSpec((1, x.shape[1], self.lanes), lambda h, b, *_: (b, 0, h))

    def of_directions(self, *, chosen: bool) -> pl.BlockSpec:
        """How `r` is cut: the direction of a row; or its gradient: all directions."""
        directions, columns, _ = self.operands.r.shape
        if chosen:
            return pl.BlockSpec(
                (1, columns, self.lanes), lambda h, b, _, direction: (direction[b], 0, h)
            )
        return pl.BlockSpec((directions, columns, self.lanes), lambda h, b, *_: (0, 0, h))

    def named(self, refs: Any) -> Operands:
        seed, direction, *rest = refs
        left = iter(rest)
        given = [None if x is None else next(left) for x in self.operands[:7]]
        return Operands(*[*given, direction, seed])

    def call(self, kernel: Any, more: tuple, outputs: list[jax.Array]) -> list[jax.Array]:
        arrays = [*self.given, *more]
        r = self.operands.r
        return pl.pallas_call(
            kernel,
            out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs],
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=2,
                grid=self.grid,
                in_specs=[
                    self.of_directions(chosen=True) if x is r else self.spec(x) for x in arrays
                ],
                out_specs=[
                    self.of_directions(chosen=False) if n == 3 else self.spec(x)
                    for n, x in enumerate(outputs)
                ],
            ),
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=("arbitrary", "arbitrary"), vmem_limit_bytes=VMEM
            ),
            interpret=self.settings.interpret,
            name="attend_relative_backward" if more else "attend_relative_forward",
        )(self.operands.seed, self.operands.direction, *arrays)


class _Queries(NamedTuple):
    """Some queries of a row in a block of heads.

    Attributes:
      window: which they are.
      content: queries of content [R, J], and
      position: of positions.
      segment: of segments, float32.
      pairs: int32 [R, T], or None.
      vectors: float32 [4, J].
    """

    window: Window
    content: jax.Array
    position: jax.Array
    segment: jax.Array
    pairs: jax.Array | None
    vectors: jax.Array

    def has(self, bit: int) -> jax.Array:
        """Bool [R, T]: whether the bit of `pairs` is set."""
        assert self.pairs is not None
        return (self.pairs & bit) > 0


def _queries(settings: Settings, refs: Operands, lanes: slice) -> Iterator[_Queries]:
    """All queries of a row, some at a time."""
    positions = None if refs.positions is None else refs.positions[0]
    vectors = refs.vectors[:, lanes]
    shape = refs.q.shape[1], refs.k.shape[1]
    for window in windows(*shape, positions, refs.r.shape[1]):
        q = refs.q[0, window.queries, lanes]
        content, position, segment = (q.astype(jnp.float32) + vectors[n : n + 1] for n in range(3))
        pairs = None if refs.pairs is None else refs.pairs[0, window.queries].astype(jnp.int32)
        yield _Queries(
            window,
            (content * settings.factor).astype(q.dtype),
            (position * settings.factor).astype(q.dtype),
            segment,
            pairs,
            vectors,
        )


def _forward(settings: Settings, refs: Operands, o: Any) -> None:
    for block in head_blocks(refs.q.shape[-1], settings.width):
        lanes = block[0].lanes
        v = refs.v[0, :, lanes]
        for asking in _queries(settings, refs, lanes):
            whole = None
            for head in block:
                e, _ = _exponentials(settings, refs, asking, head)
                # Rows are divided by their sums where they are narrow.
                scale = settings.scale / e.sum(axis=-1, keepdims=True)
                e = dropped(e, _kept(settings, refs, asking, head))
                whole = head.put(whole, product(e.astype(v.dtype), v, (1, 0)) * scale)
            assert whole is not None
            o[0, asking.window.queries, lanes] = whole.astype(o.dtype)


def _exponentials(
    settings: Settings, refs: Operands, asking: _Queries, head: Head
) -> tuple[jax.Array, jax.Array]:
    """exp(logits - top), float32 [R, T], and top [R, 1], the largest logit of each query."""
    k, r = refs.k[0, :, head.lanes], refs.r[0, asking.window.columns, head.lanes]
    logits = product(head.of(asking.content), k, (1, 1))
    logits += asking.window.to_keys(product(head.of(asking.position), r, (1, 1)))
    if settings.segments:
        segment = head.of(asking.segment * asking.vectors[3:]).sum(axis=-1, keepdims=True)
        logits += jnp.where(asking.has(DIFFERS), segment, 0.0)
    if settings.masked:
        logits = jnp.where(asking.has(SEEN), logits, MASKED)
    if settings.keys < logits.shape[1]:
        key = jax.lax.broadcasted_iota(jnp.int32, (1, logits.shape[1]), 1)
        logits = jnp.where(key < settings.keys, logits, -jnp.inf)
    top = logits.max(axis=-1, keepdims=True)
    return jnp.exp(logits - top), top


def _kept(settings: Settings, refs: Operands, asking: _Queries, head: Head) -> jax.Array | None:
    """Which probabilities stay."""
    per_step = refs.q.shape[-1] // settings.width
    number = pl.program_id(0) * per_step + head.number
    queries, keys = refs.q.shape[1], refs.k.shape[1]
    first = asking.window.queries.start
    shape = (asking.window.queries.stop - first, keys)
    return Draws(refs.seed, number, queries, settings.keys).kept(settings, shape, first=first)


def _backward(settings: Settings, refs: Operands, more: Any, outputs: Any) -> None:
    dq, dk, dv, dr, dvectors = outputs

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        dr[...] = jnp.zeros_like(dr)
        dvectors[...] = jnp.zeros_like(dvectors)

    direction = refs.direction[pl.program_id(1)]
    for block in head_blocks(refs.q.shape[-1], settings.width):
        lanes = block[0].lanes
        sums: list[Any] = [0.0, 0.0]
        for asking in _queries(settings, refs, lanes):
            rows, columns = asking.window.queries, asking.window.columns
            values_g = tuple(x[0, rows, lanes] for x in more)
            wholes: list[Any] = [None, None, None]
            of_r: Any = 0.0
            for head in block:
                found = _gradients(settings, refs, asking, head, *values_g)
                sums = [whole + part for whole, part in zip(sums, found.keys_values, strict=True)]
                of_r += found.relative
                wholes = [head.put(*pair) for pair in zip(wholes, found.queries, strict=True)]
            content, position, segment = wholes
            of_queries = (content + position) * settings.factor
            parts = [content * settings.factor, position * settings.factor]
            if settings.segments:
                of_queries += segment * asking.vectors[3:]
                parts += [segment * asking.vectors[3:], segment * asking.segment]
            dq[0, rows, lanes] = of_queries.astype(dq.dtype)
            dr[direction, columns, lanes] += of_r
            for n, part in enumerate(parts):
                dvectors[n : n + 1, lanes] += part.sum(axis=0, keepdims=True)
        dk[0, :, lanes], dv[0, :, lanes] = (x.astype(dk.dtype) for x in sums)


class _Gradients(NamedTuple):
    """Those from some queries in one head.

    `queries` are of queries of content, of positions and of segments, float32 [R, J] or [R, 1], in
    other heads' lanes anything; `keys_values` [T, J] and `relative` [C, J] are 0 there.
    """

    queries: tuple[jax.Array, jax.Array, jax.Array]
    keys_values: tuple[jax.Array, jax.Array]
    relative: jax.Array


def _gradients(
    settings: Settings,
    refs: Operands,
    asking: _Queries,
    head: Head,
    values: jax.Array,
    g: jax.Array,
) -> _Gradients:
    k, v = (x[0, :, head.lanes] for x in (refs.k, refs.v))
    r = refs.r[0, asking.window.columns, head.lanes]
    e, top = _exponentials(settings, refs, asking, head)
    keep = _kept(settings, refs, asking, head)
    # Rows are divided by their sums where they are narrow.
    g_head = head.of(g).astype(jnp.float32) / e.sum(axis=-1, keepdims=True)
    # A query that sees no key has uniform probabilities, whatever its logits are.
    g_seen = jnp.where(top > MASKED / 2, g_head, 0.0) if settings.masked else g_head
    along = (g_seen * values).sum(axis=-1, keepdims=True)
    dp = product((g_seen * settings.scale).astype(v.dtype), v, (1, 1))
    dlogits = e * (dropped(dp, keep) - along)
    dsegment = jnp.zeros_like(top)
    if settings.segments:
        dsegment = jnp.where(asking.has(DIFFERS), dlogits, 0.0).sum(axis=-1, keepdims=True)
    shifted = asking.window.to_columns(dlogits).astype(k.dtype)
    ds = dlogits.astype(k.dtype)
    weights = dropped(e, keep).astype(g.dtype)
    return _Gradients(
        (
            product(ds, k, (1, 0)),
            product(shifted, r, (1, 0)),
            jnp.broadcast_to(dsegment, g.shape),
        ),
        (
            product(ds, head.of(asking.content), (0, 0)),
            product(weights, (g_head * settings.scale).astype(g.dtype), (0, 0)),
        ),
        product(shifted, head.of(asking.position), (0, 0)),
    )

"""Attention as a Pallas kernel for TPUs: no array of queries times keys leaves the chip's memory.

A grid step takes all queries and keys of some heads of one row: parts of the queries took longer.
The backward pass computes the probabilities again from queries and keys; what a softmax's gradient
subtracts comes from the values that the forward pass returned (FlashAttention-2, Dao, 2023, section
2.3.2). Heads lie side by side in blocks of 128 lanes, as the projections leave them, so nothing is
copied around the kernel: a head that is narrower than a block is multiplied with zeros in place of
its neighbours, which costs the matrix unit nothing.

Suffixes: B batch, L queries, M keys, J joined heads, H heads.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from t5x_like.layers.attention.kernels.band import EVERYTHING, Part, Parts, whole
from t5x_like.layers.attention.kernels.head_grid import HeadGrid
from t5x_like.layers.attention.kernels.kernel_parts import (
    LANES,
    MASKED,
    Draws,
    Head,
    Operands,
    Settings,
    dropped,
    head_blocks,
    lanes_of_block,
    lanes_of_step,
    of_step,
    product,
)


def forward(settings: Settings, operands: Operands) -> jax.Array:
    """Values [B, L, J], in the dtype of `q`."""
    grid = _Grid(settings, operands)
    step = functools.partial(_forward, parts=grid.parts)
    return grid.call(step, (), [operands.q])[0]


def backward(
    settings: Settings, operands: Operands, values: jax.Array, g: jax.Array
) -> list[jax.Array]:
    """The gradients of q, k and v, and of a bias: summed over rows if they share it.

    `values` are what `forward` returned, and `g` is their gradient.
    """
    grid = _Grid(settings, operands)
    bias = [] if operands.bias is None else [operands.bias]
    sums = bool(bias) and operands.bias.shape[0] == 1
    step = functools.partial(_backward, sums=sums, parts=grid.parts)
    block = (operands.k.shape[1], lanes_of_block(operands.q.shape[-1], settings.width))
    return grid.call(
        step,
        (values, g),
        [operands.q, operands.k, operands.v, *bias],
        # Several parts see a key: its gradients are added up here.
        scratch=[pltpu.VMEM(block, jnp.float32)] * 2 if len(grid.parts) > 1 else (),
    )


class _Grid(HeadGrid):
    name = "attend"
    scalars = ("seed",)

    def __init__(self, settings: Settings, operands: Operands) -> None:
        _, queries, joined = operands.q.shape
        keys = operands.k.shape[1]
        self.parts = parts_of(settings, queries, keys, bias=operands.bias is not None)
        self.pairs = self.parts.pairs
        super().__init__(settings, operands, lanes_of_step(joined, settings.width, self.pairs))

    def spec(self, x: jax.Array) -> pl.BlockSpec:
        if x.ndim == 4:  # a bias
            own_row, heads = x.shape[0] > 1, self.lanes // self.settings.width
            return pl.BlockSpec(
                (1, heads, *x.shape[2:]), lambda h, b, *_: (b if own_row else 0, h, 0, 0)
            )
        return super().spec(x)

    def work(self, *, backward: bool) -> tuple[int, int]:
        rows, _, joined = self.operands.q.shape
        pairs = rows * self.pairs * (joined // self.settings.width)
        products = 5 if backward else 2
        return 2 * products * pairs * max(LANES, self.settings.width), pairs


def parts_of(settings: Settings, queries: int, keys: int, *, bias: bool) -> Parts:
    """The parts of the queries that a step takes one after another, each with the keys it sees."""
    if bias or not settings.in_parts:  # a bias has a gradient for every pair
        return whole(queries, keys)
    return settings.band.parts(queries, keys)


def _forward(settings: Settings, refs: Operands, o: Any, *, parts: Parts) -> None:
    refs = _of_step(settings, refs)
    for block in head_blocks(refs.q.shape[-1], settings.width):
        parts.each(functools.partial(_forward_part, settings, refs, o, block))


def _of_step(settings: Settings, refs: Operands) -> Operands:
    """The blocks with the seed of this grid step."""
    return refs._replace(seed=of_step(refs.seed, refs.q.shape[-1] // settings.width))


def _forward_part(
    settings: Settings, refs: Operands, o: Any, block: Sequence[Head], part: Part
) -> None:
    lanes = block[0].lanes
    q = refs.q[0, part.rows, lanes]
    k, v = (x[0, part.columns, lanes] for x in refs[1:3])
    values = None
    for head in block:
        e, _ = _exponentials(settings, refs, q, k, head, part)
        # Rows are divided by their sums where they are narrow.
        scale = settings.scale / e.sum(axis=-1, keepdims=True)
        e = dropped(e, _kept(settings, refs, head, part))
        values = head.put(values, product(e.astype(v.dtype), v, (1, 0)) * scale)
    assert values is not None
    o[0, part.rows, lanes] = values.astype(o.dtype)


def _backward(
    settings: Settings,
    refs: Operands,
    values: Any,
    g: Any,
    dq: Any,
    dk: Any,
    dv: Any,
    *more: Any,
    sums: bool,
    parts: Parts,
) -> None:
    refs = _of_step(settings, refs)
    dbias = () if refs.bias is None else more[:1]
    totals = more[len(dbias) :]
    if sums:

        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            dbias[0][...] = jnp.zeros_like(dbias[0])

    for block in head_blocks(refs.q.shape[-1], settings.width):
        lanes = block[0].lanes
        for total in totals:
            total[...] = jnp.zeros_like(total)

        def of_part(part: Part, block: Sequence[Head] = block, lanes: slice = lanes) -> None:
            whole = _gradients(settings, refs, (values, g), dbias, block, part, sums=sums)
            dq[0, part.rows, lanes] = whole[0].astype(dq.dtype)
            for total, x in zip(totals, whole[1:], strict=False):
                total[part.columns] += x
            if not totals:
                for ref, x in zip((dk, dv), whole[1:], strict=True):
                    ref[0, :, lanes] = x.astype(ref.dtype)

        parts.each(of_part)
        for ref, total in zip((dk, dv), totals, strict=False):
            ref[0, :, lanes] = total[...].astype(ref.dtype)


def _gradients(
    settings: Settings,
    refs: Operands,
    more: Any,
    dbias: Sequence[Any],
    block: Sequence[Head],
    part: Part,
    *,
    sums: bool,
) -> list[Any]:
    """The gradients of a part's queries, keys and values, float32; that of a bias is written."""
    lanes = block[0].lanes
    q, values, g = (x[0, part.rows, lanes] for x in (refs.q, *more))
    k, v = (x[0, part.columns, lanes] for x in refs[1:3])
    hides = refs.mask is not None or refs.segments is not None or settings.band != EVERYTHING
    wholes: list[Any] = [None, None, None]
    for head in block:
        e, top = _exponentials(settings, refs, q, k, head, part)
        keep = _kept(settings, refs, head, part)
        # Rows are divided by their sums where they are narrow.
        g_head = head.of(g).astype(jnp.float32) / e.sum(axis=-1, keepdims=True)
        # A query that sees no key has uniform probabilities, whatever its logits are.
        g_seen = jnp.where(top > MASKED / 2, g_head, 0.0) if hides else g_head
        along = (g_seen * values).sum(axis=-1, keepdims=True)
        dp = product((g_seen * settings.scale).astype(v.dtype), v, (1, 1))
        dlogits = e * (dropped(dp, keep) - along)
        if sums:
            dbias[0][0, head.number] += dlogits
        elif dbias:
            dbias[0][0, head.number] = dlogits.astype(dbias[0].dtype)
        ds = dlogits.astype(q.dtype)
        e = dropped(e, keep).astype(g.dtype)
        gradients = (
            product(ds, k, (1, 0)),
            product(ds, q, (0, 0)),
            product(e, (g_head * settings.scale).astype(g.dtype), (0, 0)),
        )
        wholes = [head.put(*pair) for pair in zip(wholes, gradients, strict=True)]
    return wholes


def _exponentials(
    settings: Settings, refs: Operands, q: jax.Array, k: jax.Array, head: Head, part: Part
) -> tuple[jax.Array, jax.Array]:
    """exp(logits - top), float32 [L, M], and top [L, 1], the largest logit of each query.

    Divided by its sum, a row holds the probabilities before dropout.
    """
    logits = product(head.of(q), k, (1, 1))
    if refs.bias is not None:
        logits += refs.bias[0, head.number].astype(jnp.float32)
    if (seen := _seen(settings, refs, part)) is not None:
        logits = jnp.where(seen, logits, MASKED)
    top = logits.max(axis=-1, keepdims=True)
    return jnp.exp(logits - top), top


def _seen(settings: Settings, refs: Operands, part: Part) -> jax.Array | None:
    """Which keys of a part its queries see; None: all."""
    # Where queries are split among devices, those of this one start at a later number.
    shape = (part.queries, part.keys)
    conditions = [settings.band.seen(refs.seed[5] + part.query, part.key, shape)]
    if refs.mask is not None:
        rows = part.rows if refs.mask.shape[1] > 1 else slice(None)
        conditions.append(refs.mask[0, rows, part.columns].astype(jnp.int32) > 0)
    if refs.segments is not None:
        conditions.append(refs.segments[0, part.rows] == refs.key_segments[0, :, part.columns])
    held = [condition for condition in conditions if condition is not None]
    return functools.reduce(jnp.logical_and, held) if held else None


def _kept(settings: Settings, refs: Operands, head: Head, part: Part) -> jax.Array | None:
    """Which probabilities stay."""
    return Draws(refs.seed, head.number, refs.k.shape[1]).of_part(settings, part)

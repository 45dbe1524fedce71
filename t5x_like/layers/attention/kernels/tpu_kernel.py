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

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from t5x_like.layers.attention.kernels.kernel_parts import (
    LANES,
    MASKED,
    Draws,
    Head,
    Operands,
    Settings,
    dropped,
    head_blocks,
    lanes_of_step,
    product,
)


def forward(settings: Settings, operands: Operands) -> jax.Array:
    """Values [B, L, J], in the dtype of `q`."""
    grid = _Grid(settings, operands)

    def kernel(seed: Any, *refs: Any) -> None:
        *inputs, o = refs
        _forward(settings, grid.named(inputs, seed), o)

    return grid.call(kernel, (), [operands.q])[0]


def backward(
    settings: Settings, operands: Operands, values: jax.Array, g: jax.Array
) -> list[jax.Array]:
    """The gradients of q, k and v, and of a bias: summed over rows if they share it.

    Args:
      settings, operands: those of `forward`.
      values: what it returned, and
      g: the gradient of this.
    """
    grid = _Grid(settings, operands)

    def kernel(seed: Any, *refs: Any) -> None:
        inputs, (values, g, *outputs) = refs[: grid.number], refs[grid.number :]
        _backward(settings, grid.named(inputs, seed), (values, g), outputs, sums=sums)

    bias = [] if operands.bias is None else [operands.bias]
    sums = bool(bias) and operands.bias.shape[0] == 1
    return grid.call(kernel, (values, g), [operands.q, operands.k, operands.v, *bias])


class _Grid:
    """Steps over groups of heads, and within each over rows: so the bias of a group stays."""

    def __init__(self, settings: Settings, operands: Operands) -> None:
        self.settings, self.operands = settings, operands
        rows, queries, joined = operands.q.shape
        keys = operands.k.shape[1]
        self.lanes = lanes_of_step(joined, settings.width, queries * keys)
        self.heads = self.lanes // settings.width
        self.grid = (joined // self.lanes, rows)
        self.given = [x for x in operands[:5] if x is not None]
        self.number = len(self.given)

    def spec(self, x: jax.Array) -> pl.BlockSpec:
        """How an operand is cut: joined heads, a mask or a bias."""
        own_row = x.shape[0] > 1
        if x.ndim == 4:
            return pl.BlockSpec(
                (1, self.heads, *x.shape[2:]), lambda h, b, *_: (b if own_row else 0, h, 0, 0)
            )
        if x.dtype == jnp.int8:
            return pl.BlockSpec((1, *x.shape[1:]), lambda h, b, *_: (b if own_row else 0, 0, 0))
        return pl.BlockSpec((1, x.shape[1], self.lanes), lambda h, b, *_: (b, 0, h))

    def named(self, refs: Any, seed: Any) -> Operands:
        left = iter(refs)
        q, k, v, mask, bias = (None if x is None else next(left) for x in self.operands[:5])
        return Operands(q, k, v, mask, bias, seed)

    def call(self, kernel: Any, more: tuple, outputs: list[jax.Array]) -> list[jax.Array]:
        arrays = [*self.given, *more]
        return pl.pallas_call(
            kernel,
            out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs],
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1,
                grid=self.grid,
                in_specs=[self.spec(x) for x in arrays],
                out_specs=[self.spec(x) for x in outputs],
            ),
            compiler_params=pltpu.CompilerParams(
                # Two cores of a chip take different heads.
                dimension_semantics=("parallel", "arbitrary"),
                vmem_limit_bytes=self.settings.vmem,
            ),
            cost_estimate=self.cost(arrays, outputs),
            interpret=self.settings.interpret,
            name="attend_backward" if more else "attend_forward",
        )(self.operands.seed, *arrays)

    def cost(self, arrays: list[jax.Array], outputs: list[jax.Array]) -> pl.CostEstimate:
        """What a call does; a narrow head is multiplied as a whole block of lanes."""
        q, k = self.operands.q, self.operands.k
        heads = q.shape[-1] // self.settings.width
        pairs = q.shape[0] * q.shape[1] * k.shape[1] * heads
        products = 2 if len(outputs) == 1 else 5
        return pl.CostEstimate(
            flops=2 * products * pairs * max(LANES, self.settings.width),
            transcendentals=pairs,
            bytes_accessed=sum(x.size * x.dtype.itemsize for x in (*arrays, *outputs)),
        )


def _forward(settings: Settings, refs: Operands, o: Any) -> None:
    for block in head_blocks(refs.q.shape[-1], settings.width):
        lanes = block[0].lanes
        q, k, v = (x[0, :, lanes] for x in refs[:3])
        whole = None
        for head in block:
            e, _ = _exponentials(refs, q, k, head)
            # Rows are divided by their sums where they are narrow.
            scale = settings.scale / e.sum(axis=-1, keepdims=True)
            e = dropped(e, _kept(settings, refs, head))
            whole = head.put(whole, product(e.astype(v.dtype), v, (1, 0)) * scale)
        assert whole is not None
        o[0, :, lanes] = whole.astype(o.dtype)


def _backward(settings: Settings, refs: Operands, more: Any, outputs: Any, *, sums: bool) -> None:
    dq, dk, dv, *dbias = outputs
    if sums:

        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            dbias[0][...] = jnp.zeros_like(dbias[0])

    for block in head_blocks(refs.q.shape[-1], settings.width):
        lanes = block[0].lanes
        q, k, v, values, g = (x[0, :, lanes] for x in (*refs[:3], *more))
        wholes: list[Any] = [None, None, None]
        for head in block:
            e, top = _exponentials(refs, q, k, head)
            keep = _kept(settings, refs, head)
            # Rows are divided by their sums where they are narrow.
            g_head = head.of(g).astype(jnp.float32) / e.sum(axis=-1, keepdims=True)
            # A query that sees no key has uniform probabilities, whatever its logits are.
            g_seen = g_head if refs.mask is None else jnp.where(top > MASKED / 2, g_head, 0.0)
            along = (g_seen * values).sum(axis=-1, keepdims=True)
            dp = product((g_seen * settings.scale).astype(v.dtype), v, (1, 1))
            dlogits = e * (dropped(dp, keep) - along)
            if sums:
                dbias[0][0, head.number] += dlogits
            elif dbias:
                dbias[0][0, head.number] = dlogits.astype(dbias[0].dtype)
            ds = dlogits.astype(q.dtype)
            e = dropped(e, keep).astype(g.dtype)
            parts = (
                product(ds, k, (1, 0)),
                product(ds, q, (0, 0)),
                product(e, (g_head * settings.scale).astype(g.dtype), (0, 0)),
            )
            wholes = [head.put(*pair) for pair in zip(wholes, parts, strict=True)]
        for ref, whole in zip((dq, dk, dv), wholes, strict=True):
            ref[0, :, lanes] = whole.astype(ref.dtype)


def _exponentials(
    refs: Operands, q: jax.Array, k: jax.Array, head: Head
) -> tuple[jax.Array, jax.Array]:
    """exp(logits - top), float32 [L, M], and top [L, 1], the largest logit of each query.

    Divided by its sum, a row holds the probabilities before dropout.
    """
    logits = product(head.of(q), k, (1, 1))
    if refs.bias is not None:
        logits += refs.bias[0, head.number].astype(jnp.float32)
    if refs.mask is not None:
        logits = jnp.where(refs.mask[0].astype(jnp.int32) > 0, logits, MASKED)
    top = logits.max(axis=-1, keepdims=True)
    return jnp.exp(logits - top), top


def _kept(settings: Settings, refs: Operands, head: Head) -> jax.Array | None:
    """Which probabilities stay."""
    per_step = refs.q.shape[-1] // settings.width
    number = pl.program_id(0) * per_step + head.number
    queries, keys = refs.q.shape[1], refs.k.shape[1]
    return Draws(refs.seed, number, keys).kept(settings, (queries, keys))

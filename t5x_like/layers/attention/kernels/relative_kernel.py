"""Attention by content, position and segment as a Pallas kernel for TPUs.

A query's products with the vectors of relative positions are shifted to the keys that they are for
in the chip's memory (`relative_shift`), and those of a key, where there are any, to the queries
(`key_shift`). No array of queries times keys, nor of either times relative positions, leaves it.
The rest is as in `tpu_kernel`.

Suffixes: B batch, Q queries, J joined heads.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from t5x_like.layers.attention.kernels.head_grid import HeadGrid
from t5x_like.layers.attention.kernels.kernel_parts import lanes_of_block
from t5x_like.layers.attention.kernels.relative_step import (
    Operands,
    Settings,
    backward_step,
    forward_step,
)


def forward(settings: Settings, operands: Operands) -> jax.Array:
    """Values [B, Q, J], in the dtype of `q`."""
    grid = _Grid(settings, operands)
    return grid.call(forward_step, (), [grid.q])[0]


def backward(
    settings: Settings, operands: Operands, values: jax.Array, g: jax.Array
) -> list[jax.Array]:
    """The gradients of the queries, k and v; and of r, vectors and s, float32 sums over rows.

    `values` are what `forward` returned, and `g` is their gradient.
    """
    grid = _Grid(settings, operands)
    summed = [operands.r, operands.vectors, *([] if operands.s is None else [operands.s])]
    sums = [jax.ShapeDtypeStruct(x.shape, jnp.float32) for x in summed]
    return grid.call(backward_step, (values, g), [grid.q, operands.k, operands.v, *sums])


class _Grid(HeadGrid):
    name = "attend_relative"
    scalars = ("seed", "direction")

    def __init__(self, settings: Settings, operands: Operands) -> None:
        rows, _, joined = operands.q.shape
        super().__init__(settings, operands, lanes_of_block(joined, settings.width))
        self.q = jax.ShapeDtypeStruct((rows, settings.queries, joined), operands.q.dtype)

    def spec(self, x: Any) -> pl.BlockSpec:
        if x.ndim == 2:
            return pl.BlockSpec((x.shape[0], self.lanes), lambda h, b, *_: (0, h))
        if x is self.operands.r:  # the direction of a row
            return pl.BlockSpec(
                (1, 1, x.shape[2], self.lanes), lambda h, b, _, direction: (0, direction[b], 0, h)
            )
        if x.ndim == 4:  # its gradient, of all directions, or s, which has one
            return pl.BlockSpec((1, *x.shape[1:3], self.lanes), lambda h, b, *_: (0, 0, 0, h))
        return super().spec(self.q if x is self.operands.q else x)

    def work(self, *, backward: bool) -> tuple[int, int]:
        rows, queries, joined = self.q.shape
        keys, columns = self.operands.k.shape[1], self.operands.r.shape[2]
        heads = rows * queries * (joined // self.settings.width)
        of_keys, of_columns = (5, 3) if backward else (2, 1)
        if self.operands.s is not None:
            of_columns *= 2
        flops = 2 * heads * (of_keys * keys + of_columns * columns) * self.lanes
        return flops, heads * keys

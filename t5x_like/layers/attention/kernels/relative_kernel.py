"""Attention by content, position and segment as a Pallas kernel for TPUs.

A query's products with the vectors of relative positions are shifted to the keys that they are for
in the chip's memory (`relative_shift`); no array of queries times keys, nor of queries times
relative positions, leaves it. The rest is as in `tpu_kernel`.

Suffixes: B batch, Q queries, J joined heads.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

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

    def kernel(*refs: Any) -> None:
        *inputs, o = refs
        forward_step(settings, grid.named(inputs), o)

    return grid.call(kernel, (), [grid.q])[0]


def backward(
    settings: Settings, operands: Operands, values: jax.Array, g: jax.Array
) -> list[jax.Array]:
    """The gradients of the queries, k and v; and of r and vectors, float32 sums over rows.

    Args:
      settings, operands: those of `forward`.
      values: what it returned, and
      g: the gradient of this.
    """
    grid = _Grid(settings, operands)

    def kernel(*refs: Any) -> None:
        inputs, (values, g, *outputs) = refs[: grid.number], refs[grid.number :]
        backward_step(settings, grid.named(inputs), (values, g), outputs)

    sums = [x.astype(jnp.float32) for x in (operands.r, operands.vectors)]
    return grid.call(kernel, (values, g), [grid.q, operands.k, operands.v, *sums])


class _Grid:
    """Steps over groups of heads, and within each over rows: so sums over rows stay."""

    def __init__(self, settings: Settings, operands: Operands) -> None:
        self.settings, self.operands = settings, operands
        rows, _, joined = operands.q.shape
        self.lanes = lanes_of_block(joined, settings.width)
        self.q = jax.ShapeDtypeStruct((rows, settings.queries, joined), operands.q.dtype)
        self.grid = (joined // self.lanes, rows)
        self.given = [x for x in operands[:7] if x is not None]
        self.number = 2 + len(self.given)

    def spec(self, x: Any) -> pl.BlockSpec:
        """How an array is cut: one of `Operands`, or a gradient."""
        if x.ndim == 2:
            return pl.BlockSpec((x.shape[0], self.lanes), lambda h, b, *_: (0, h))
        if not jnp.issubdtype(x.dtype, jnp.floating):
            own_row = x.shape[0] > 1
            return pl.BlockSpec((1, *x.shape[1:]), lambda h, b, *_: (b if own_row else 0, 0, 0))
        length = self.settings.queries if x is self.operands.q else x.shape[1]
        return pl.BlockSpec((1, length, self.lanes), lambda h, b, *_: (b, 0, h))

    def of_directions(self, *, chosen: bool) -> pl.BlockSpec:
        """How `r` is cut: the direction of a row; or its gradient: all directions."""
        _, directions, columns, _ = self.operands.r.shape
        if chosen:
            return pl.BlockSpec(
                (1, 1, columns, self.lanes), lambda h, b, _, direction: (0, direction[b], 0, h)
            )
        return pl.BlockSpec((1, directions, columns, self.lanes), lambda h, b, *_: (0, 0, 0, h))

    def named(self, refs: Any) -> Operands:
        seed, direction, *rest = refs
        left = iter(rest)
        given = [None if x is None else next(left) for x in self.operands[:7]]
        return Operands(*[*given, direction, seed])

    def call(self, kernel: Any, more: tuple, outputs: list[Any]) -> list[jax.Array]:
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
                # Two cores of a chip take different heads.
                dimension_semantics=("parallel", "arbitrary"),
                vmem_limit_bytes=self.settings.vmem,
            ),
            cost_estimate=self.cost(arrays, outputs),
            interpret=self.settings.interpret,
            name="attend_relative_backward" if more else "attend_relative_forward",
        )(self.operands.seed, self.operands.direction, *arrays)

    def cost(self, arrays: list[jax.Array], outputs: list[Any]) -> pl.CostEstimate:
        """What a call does; a narrow head is multiplied as a whole block of lanes."""
        rows, queries, joined = self.q.shape
        keys, columns = self.operands.k.shape[1], self.operands.r.shape[2]
        heads = rows * queries * (joined // self.settings.width)
        of_keys, of_columns = (2, 1) if len(outputs) == 1 else (5, 3)
        return pl.CostEstimate(
            flops=2 * heads * (of_keys * keys + of_columns * columns) * self.lanes,
            transcendentals=heads * keys,
            bytes_accessed=sum(x.size * x.dtype.itemsize for x in (*arrays, *outputs)),
        )

"""How a kernel for TPUs walks over the heads and rows of a batch.

Suffixes: B batch, L queries, M keys, J joined heads.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


class HeadGrid(abc.ABC):
    """Steps over groups of heads, and within each over rows: so what rows share stays.

    Args:
      settings: the kernel's, a `kernel_parts.Settings`.
      operands: a NamedTuple of arrays, or None where there is none; `q` is [B, L, J].
      lanes: how many lanes of J a step takes.
    """

    name: ClassVar[str]
    scalars: ClassVar[tuple[str, ...]]
    """Operands of integers that a step has whole."""

    def __init__(self, settings: Any, operands: Any, lanes: int) -> None:
        self.settings, self.operands, self.lanes = settings, operands, lanes
        rows, _, joined = operands.q.shape
        self.grid = (joined // lanes, rows)
        given = operands._asdict()
        self.whole = {name: given.pop(name) for name in self.scalars}
        self.cut = {name: x for name, x in given.items() if x is not None}

    def spec(self, x: Any) -> pl.BlockSpec:
        """How an operand or a gradient is cut: joined heads [B, L, J], or integers [B|1, ...]."""
        if jnp.issubdtype(x.dtype, jnp.integer):
            own_row = x.shape[0] > 1
            return pl.BlockSpec((1, *x.shape[1:]), lambda h, b, *_: (b if own_row else 0, 0, 0))
        return pl.BlockSpec((1, x.shape[1], self.lanes), lambda h, b, *_: (b, 0, h))

    @abc.abstractmethod
    def work(self, *, backward: bool) -> tuple[int, int]:
        """Floating-point operations and exponentials of a pass.

        A narrow head is multiplied as a whole block of lanes.
        """

    def call(
        self,
        step: Callable[..., None],
        more: Sequence[jax.Array],
        outputs: Sequence[Any],
        *,
        scratch: Sequence[Any] = (),
    ) -> list[jax.Array]:
        """Arrays of the shapes of `outputs`.

        Args:
          step: writes a step's blocks of them, for the settings, blocks of the operands and of
            `more`, its blocks of the outputs, and scratch.
          more: the values and their gradient; empty in the forward pass.
          outputs: have shapes and dtypes.
          scratch: memory that a step has besides.
        """
        names = [*self.whole, *self.cut]
        arrays = [*self.cut.values(), *more]
        flops, exponentials = self.work(backward=bool(more))

        def kernel(*refs: Any) -> None:
            blocks = self.operands._replace(**dict(zip(names, refs, strict=False)))
            step(self.settings, blocks, *refs[len(names) :])

        return pl.pallas_call(
            kernel,
            out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs],
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=len(self.whole),
                grid=self.grid,
                in_specs=[self.spec(x) for x in arrays],
                out_specs=[self.spec(x) for x in outputs],
                scratch_shapes=[*scratch],
            ),
            compiler_params=pltpu.CompilerParams(
                # Two cores of a chip take different heads.
                dimension_semantics=("parallel", "arbitrary"),
                vmem_limit_bytes=self.settings.vmem,
            ),
            cost_estimate=pl.CostEstimate(
                flops=flops,
                transcendentals=exponentials,
                bytes_accessed=sum(x.size * x.dtype.itemsize for x in (*arrays, *outputs)),
            ),
            interpret=self.settings.interpret,
            name=f"{self.name}_{'backward' if more else 'forward'}",
        )(*self.whole.values(), *arrays)

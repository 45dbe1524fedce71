"""Attention as a Pallas kernel for GPUs (Triton): no array of queries times keys leaves the chip.

A program takes a block of queries and walks over the keys (FlashAttention-2, Dao, 2023, section
3.1). The backward pass computes probabilities again, in two or three calls: for the queries, which
leaves their `statistics`; for keys and values; for a bias that rows share. No program adds to what
another one writes, so that the same numbers come each time.

Suffixes: B batch, L queries, M keys, H heads, K their width, J joined heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from t5x_like.layers.attention.kernels import gpu_step
from t5x_like.layers.attention.kernels.gpu_step import Lengths
from t5x_like.layers.attention.kernels.kernel_parts import Operands, Settings

_LEAST, _MOST = 16, 64
"""Positions of a block: the least that matrix units multiply; how many of 16-bit numbers there is
room for."""


def forward(settings: Settings, operands: Operands) -> jax.Array:
    """Values [B, L, J], in the dtype of `q`."""
    calls = _Calls(settings, operands)
    (values,) = calls.over_rows(
        gpu_step.values, calls.blocks[0], [], [calls.of_q], "attend_forward"
    )
    return calls.joined(values, operands.q)


def backward(
    settings: Settings, operands: Operands, values: jax.Array, g: jax.Array
) -> list[jax.Array]:
    """The gradients of q, k and v, and of a bias: summed over rows if they share it.

    `values` are what `forward` returned, and `g` is their gradient.
    """
    calls = _Calls(settings, operands)
    arrays = [_Array(calls.heads(x, calls.lengths.of_queries)) for x in (values, g)]
    bias = [] if operands.bias is None else [calls.given[4]]
    shared = operands.bias is not None and len(operands.bias) == 1
    outputs = [calls.of_q, calls.statistics, *([] if shared else bias)]
    dq, statistics, *dbias = calls.over_rows(
        gpu_step.query_gradient, calls.blocks[0], arrays, outputs, "attend_backward_queries"
    )
    arrays = [arrays[1], _Array(statistics, by_head=True)]
    dk, dv = calls.over_rows(
        gpu_step.key_gradients, calls.blocks[1], arrays, calls.given[1:3], "attend_backward_keys"
    )
    if shared:
        dbias = calls.over_heads(gpu_step.bias_gradient, arrays, bias, "attend_backward_bias")
    _, queries, _ = operands.q.shape
    return [
        calls.joined(dq, operands.q),
        *(calls.joined(x, operands.k) for x in (dk, dv)),
        *(x[:, :, :queries, : operands.k.shape[1]] for x in dbias),
    ]


def _block(length: int, most: int) -> int:
    """How many queries or keys a program takes at once."""
    return min(most, max(_LEAST, pl.next_power_of_2(length)))


class _Array(NamedTuple):
    """An array, or the shape of one: [B, L, H, K], or `by_head` [B|1, H, ...]."""

    value: Any
    by_head: bool = False


class _Calls:
    """Calls of kernels for some operands; lengths are filled up to whole blocks."""

    def __init__(self, settings: Settings, operands: Operands) -> None:
        self.settings = settings
        queries, keys = operands.q.shape[1], operands.k.shape[1]
        # Blocks of all have as many bytes: the chip's memory is small.
        most = _MOST * 2 // max(2, operands.q.dtype.itemsize)
        self.lengths = Lengths(keys, _block(queries, most), _block(keys, most))
        q = self.heads(operands.q, self.lengths.of_queries)
        k, v = (self.heads(x, self.lengths.of_keys) for x in (operands.k, operands.v))
        self.blocks = q.shape[1] // self.lengths.of_queries, k.shape[1] // self.lengths.of_keys
        self.of_q = _Array(q)
        self.statistics = _Array(
            jax.ShapeDtypeStruct((len(q), q.shape[2], 3, q.shape[1]), jnp.float32), by_head=True
        )
        self.given = [
            self.of_q,
            _Array(k),
            _Array(v),
            _Array(self._pairs(operands.mask)),
            _Array(self._pairs(operands.bias), by_head=True),
            _Array(operands.seed),
            _Array(self._of_rows(operands.segments, self.lengths.of_queries)),
            _Array(self._of_rows(operands.key_segments, self.lengths.of_keys)),
        ]

    def heads(self, x_BLJ: jax.Array, block: int) -> jax.Array:
        """[B, L, H, K], L filled up."""
        rows, length, _ = x_BLJ.shape
        x_BLHK = x_BLJ.reshape(rows, length, -1, self.settings.width)
        return jnp.pad(x_BLHK, ((0, 0), (0, -length % block), (0, 0), (0, 0)))

    def joined(self, x_BLHK: jax.Array, like: jax.Array) -> jax.Array:
        """[B, L, J], without what was filled up."""
        return x_BLHK[:, : like.shape[1]].reshape(like.shape)

    def _pairs(self, x: jax.Array | None) -> jax.Array | None:
        """A mask or a bias, filled up with zeros."""
        if x is None:
            return None
        *leading, queries, keys = x.shape
        rows = 0 if queries == 1 and x.ndim == 3 else -queries % self.lengths.of_queries
        columns = -keys % self.lengths.of_keys
        return jnp.pad(x, [*[(0, 0)] * len(leading), (0, rows), (0, columns)])

    def _of_rows(self, x: jax.Array | None, block: int) -> jax.Array | None:
        """Segments [B, L, 1] or [B, 1, M] as [B, L], filled up."""
        if x is None:
            return None
        x = x.reshape(len(x), -1)
        return jnp.pad(x, ((0, 0), (0, -x.shape[1] % block)))

    def over_rows(
        self,
        kernel: Callable[..., None],
        blocks: int,
        given: Sequence[_Array],
        outputs: Sequence[_Array],
        name: str,
    ) -> list[jax.Array]:
        """A program for each block of positions of a head of a row.

        Those of a head are neighbours: they read the same keys and values.
        """

        def place(x: _Array) -> pl.BlockSpec:
            return self._place(x, 1, lambda n: (n[2], n[1]))

        rows, _, heads, _ = self.of_q.value.shape
        return self._call(kernel, (blocks, heads, rows), given, outputs, name, place)

    def over_heads(
        self,
        kernel: Callable[..., None],
        given: Sequence[_Array],
        outputs: Sequence[_Array],
        name: str,
    ) -> list[jax.Array]:
        """A program for each block of queries and keys of a head of all rows."""

        def place(x: _Array) -> pl.BlockSpec:
            return self._place(x, len(x.value), lambda n: (0, n[2]))

        heads = self.of_q.value.shape[2]
        return self._call(kernel, (*self.blocks, heads), given, outputs, name, place)

    def _place(self, x: _Array, rows: int, of: Callable[[Any], tuple[Any, Any]]) -> pl.BlockSpec:
        """The block that a program sees: `rows` rows, one head, all positions.

        `of` gives the row and the head of a program.
        """
        shape = x.value.shape
        if len(shape) == 1:
            return pl.BlockSpec(shape, lambda *_: (0,))

        def index(*n: Any) -> tuple[Any, ...]:
            row, head = of(n)
            row = row if shape[0] > 1 else 0
            if len(shape) < 4:
                return row, *[0] * (len(shape) - 1)
            return (row, head, 0, 0) if x.by_head else (row, 0, head, 0)

        if len(shape) < 4:
            return pl.BlockSpec((rows, *shape[1:]), index)
        block = (None, shape[2]) if x.by_head else (shape[1], None)
        return pl.BlockSpec((rows, *block, shape[3]), index)

    def _call(
        self,
        kernel: Callable[..., None],
        grid: tuple[int, ...],
        given: Sequence[_Array],
        outputs: Sequence[_Array],
        name: str,
        place: Callable[[_Array], pl.BlockSpec],
    ) -> list[jax.Array]:
        present = [x.value is not None for x in self.given]
        arrays = [x for x in (*self.given, *given) if x.value is not None]

        def body(*refs: Any) -> None:
            left = iter(refs)
            operands = Operands(*(next(left) if is_present else None for is_present in present))
            kernel(self.settings, self.lengths, operands, *left)

        return pl.pallas_call(
            body,
            out_shape=[jax.ShapeDtypeStruct(x.value.shape, x.value.dtype) for x in outputs],
            grid=grid,
            in_specs=[place(x) for x in arrays],
            out_specs=[place(x) for x in outputs],
            compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
            interpret=self.settings.interpret,
            name=name,
        )(*(x.value for x in arrays))

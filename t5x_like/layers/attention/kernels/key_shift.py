"""From relative to absolute positions and back in a Pallas kernel, where keys are multiplied.

128 keys are lanes and relative positions are rows, so each lane has its own window of rows. The row
after those that lane l needs for a query is what lane l - 1 needs last: the window of lane l begins
at row 127 - l. Moving a lane by a multiple of 8 rows is a choice between whole registers, and by
fewer a permutation of a register's rows.

Suffixes: P queries that ask, R rows of queries, T keys, N = 128 lanes, W = R + 128 rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from t5x_like.layers.attention.kernels.kernel_parts import LANES, product
from t5x_like.layers.attention.kernels.relative_shift import Window

_ROWS = 8
"""Rows of a register."""
_LEAPS = (64, 32, 16, 8)
"""Moves by whole registers, which add up to every multiple of 8 below 128."""


class KeyWindows(NamedTuple):
    """The rows of relative positions that keys are multiplied with for some queries.

    Row c is for a query that is c - (T - 1) after its key.

    Attributes:
      first: the position of the first of R queries, which follow one another.
      queries: R, a multiple of 8.
      asking: how many of these ask, the first ones, or
      positions: int32 [P, 1], where in them those are that ask; None: see `asking`.
      keys: T.
    """

    first: int
    queries: int
    asking: int
    positions: jax.Array | None
    keys: int

    @classmethod
    def of(cls, window: Window, length: int) -> KeyWindows:
        """Those for the queries of a window in a row of this length, a multiple of 8."""
        asking = window.queries.stop - window.queries.start
        if window.positions is not None:
            return cls(0, length, asking, window.positions, window.keys)
        return cls(window.queries.start, -(-asking // _ROWS) * _ROWS, asking, None, window.keys)

    def blocks(self) -> list[tuple[slice, slice]]:
        """Each block of 128 keys with the W rows that it is multiplied with."""
        pairs = []
        for start in range(0, self.keys, LANES):
            row = self.keys - LANES - start + self.first
            pairs.append((slice(start, start + LANES), slice(row, row + self.queries + LANES)))
        return pairs

    def to_pairs(self, blocks: Sequence[jax.Array]) -> jax.Array:
        """Float32 [P, T], from [W, N] for each block of keys."""
        x_RT = jnp.concatenate([_to_queries(x_WN) for x_WN in blocks], axis=1)
        if self.positions is None:
            return x_RT[: self.asking]
        return self._placed(x_RT, 1)

    def to_blocks(self, x_PT: jax.Array, dtype: DTypeLike) -> list[jax.Array]:
        """[W, N] for each block of keys, zero outside windows: what `to_pairs` does, transposed."""
        if self.positions is None:
            more = self.queries - self.asking
            x_RT = jnp.pad(x_PT, ((0, more), (0, 0))) if more else x_PT
        else:
            x_RT = self._placed(x_PT.astype(dtype), 0)
        return [_to_rows(x_RT[:, keys]).astype(dtype) for keys, _ in self.blocks()]

    def _placed(self, x: jax.Array, over: int) -> jax.Array:
        """Float32 [P, T] from [R, T], the rows that ask, or `over` 0: from [P, T] [R, T], sums.

        They are products with ones. The matrix unit multiplies 16-bit numbers, of which three add
        up to a float32.
        """
        place_PR = jax.lax.broadcasted_iota(jnp.int32, (self.asking, self.queries), 1)
        ones_PR = jnp.where(place_PR == self.positions, 1.0, 0.0).astype(jnp.bfloat16)
        whole = None
        for _ in range(3 if x.dtype == jnp.float32 else 1):
            part = x.astype(jnp.bfloat16)
            moved = product(ones_PR, part, (over, 0))
            whole = moved if whole is None else whole + moved
            x -= part.astype(x.dtype)
        assert whole is not None
        return whole


def _to_queries(x_WN: jax.Array) -> jax.Array:
    """[R, N]: each lane's window."""
    queries, begin_1N = len(x_WN) - LANES, _begin()
    for leap in _LEAPS:
        rest = queries + leap  # what the smaller moves need
        x_WN = jnp.where((begin_1N & leap) > 0, x_WN[leap : leap + rest], x_WN[:rest])
    row = jax.lax.broadcasted_iota(jnp.int32, (_ROWS, LANES), 0) + (begin_1N & (_ROWS - 1))
    pairs = itertools.pairwise(_turned(x_WN, row))
    return jnp.concatenate([jnp.where(row < _ROWS, *pair) for pair in pairs])


def _to_rows(x_RN: jax.Array) -> jax.Array:
    """[W, N], zero outside each lane's window."""
    begin_1N = _begin()
    row = jax.lax.broadcasted_iota(jnp.int32, (_ROWS, LANES), 0) - (begin_1N & (_ROWS - 1))
    turned = _turned(x_RN, row)
    nothing = jnp.zeros_like(turned[0])
    pairs = zip([*turned, nothing], [nothing, *turned], strict=True)
    x_WN = jnp.concatenate([jnp.where(row >= 0, *pair) for pair in pairs])
    for leap in reversed(_LEAPS):
        nothing = jnp.zeros((leap, LANES), x_WN.dtype)
        moved, stays = (jnp.concatenate(parts) for parts in ([nothing, x_WN], [x_WN, nothing]))
        x_WN = jnp.where((begin_1N & leap) > 0, moved, stays)
    return x_WN


def _begin() -> jax.Array:
    """Int32 [1, N]: where each lane's window begins."""
    return LANES - 1 - jax.lax.broadcasted_iota(jnp.int32, (1, LANES), 1)


def _turned(x: jax.Array, row: jax.Array) -> list[jax.Array]:
    """Each 8 rows of `x`, where row r of a lane is what `row` says, modulo 8."""
    row = row & (_ROWS - 1)
    return [
        jnp.take_along_axis(x[start : start + _ROWS], row, axis=0, mode="promise_in_bounds")
        for start in range(0, len(x), _ROWS)
    ]

"""From relative to absolute positions and back, in a Pallas kernel: each query has its own window.

Relative positions are padded so that query i's window of T columns begins at column S - i, where S
is a multiple of 128 and T is one too. A block of queries reads T + 128 columns; within these, a
query's window begins at 1 to 128.

Suffixes: R queries of a block, C columns of relative positions, T keys, W = T + 128 columns.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu

from t5x_like.layers.attention.kernel_parts import LANES

_BITS = LANES.bit_length() - 1


class Window(NamedTuple):
    """The columns that a block of queries reads.

    Attributes:
      queries: which queries.
      columns: which columns of relative positions their products are needed for.
      keys: T.
      positions: int32 [R, 1], the queries' positions in a row; None: they follow one another, and
        the first is a multiple of 128.
    """

    queries: slice
    columns: slice
    keys: int
    positions: jax.Array | None = None

    def to_keys(self, x_RC: jax.Array) -> jax.Array:
        """Float32 [R, T]: each query's window of [R, C]."""
        if self.positions is None:
            return pltpu.roll(x_RC, self.keys, 1, stride=1, stride_axis=0)[:, : self.keys]
        x_RW = self._block(0, x_RC)
        for n in range(1, self._blocks):
            x_RW = jnp.where(self._in_block(n), self._block(n, x_RC), x_RW)
        begin_R1 = self._begin(x_RC.shape[0])
        lane = jax.lax.broadcasted_iota(jnp.int32, (x_RC.shape[0], LANES), 1)
        rolled = _rolled(x_RW, lane + begin_R1)
        within = lane + begin_R1 < LANES
        tiles = [jnp.where(within, *pair) for pair in itertools.pairwise(rolled)]
        return jnp.concatenate(tiles, axis=1)

    def to_columns(self, x_RT: jax.Array) -> jax.Array:
        """Float32 [R, C], zero outside each query's window: what `to_keys` does, transposed."""
        begin_R1 = self._begin(x_RT.shape[0])
        lane = jax.lax.broadcasted_iota(jnp.int32, (x_RT.shape[0], LANES), 1)
        rolled = _rolled(x_RT, lane - begin_R1)
        nothing = jnp.zeros_like(rolled[0])
        tiles = zip([*rolled, nothing], [nothing, *rolled], strict=True)
        x_RW = jnp.concatenate([jnp.where(lane >= begin_R1, *pair) for pair in tiles], axis=1)
        if self.positions is None:
            return x_RW
        x_RC = self._placed(0, x_RW)
        for n in range(1, self._blocks):
            x_RC = jnp.where(self._in_block(n), self._placed(n, x_RW), x_RC)
        return x_RC

    @property
    def _blocks(self) -> int:
        """How many blocks of 128 columns a window may begin in."""
        return (self.columns.stop - self.columns.start - self.keys) // LANES

    def _begin(self, queries: int) -> jax.Array:
        """Where windows begin in W: int32 [R, 1], 1 to 128."""
        if self.positions is None:
            return LANES - jax.lax.broadcasted_iota(jnp.int32, (queries, 1), 0)
        return LANES - (self.positions & (LANES - 1))

    def _in_block(self, n: int) -> jax.Array:
        """Bool [R, 1]: whether a window begins in block n."""
        assert self.positions is not None
        return self.positions >> _BITS == self._blocks - 1 - n

    def _block(self, n: int, x_RC: jax.Array) -> jax.Array:
        """W columns from block n on."""
        return x_RC[:, n * LANES : (n + 1) * LANES + self.keys]

    def _placed(self, n: int, x_RW: jax.Array) -> jax.Array:
        """W columns at block n of C, zeros around them."""
        around = (n * LANES, (self._blocks - 1 - n) * LANES)
        before, after = (jnp.zeros((len(x_RW), size), x_RW.dtype) for size in around)
        parts = [part for part in (before, x_RW, after) if part.shape[1]]
        return jnp.concatenate(parts, axis=1)


def windows(queries: int, keys: int, positions: jax.Array | None, columns: int) -> list[Window]:
    """The blocks of queries of a row.

    Args:
      queries: their number.
      keys: T.
      positions: int32 [queries, 1]; None: the queries are the whole row.
      columns: C.
    """
    found = []
    for start in range(0, queries, LANES):
        rows = slice(start, min(start + LANES, queries))
        if positions is None:
            first = columns - keys - LANES - start
            found.append(Window(rows, slice(first, first + keys + LANES), keys))
        else:
            found.append(Window(rows, slice(0, columns), keys, positions[rows]))
    return found


def _rolled(x: jax.Array, lane: jax.Array) -> list[jax.Array]:
    """Each block of 128 lanes of `x`, where lane l of a row is what `lane` says, modulo 128."""
    lane = lane & (LANES - 1)
    return [
        jnp.take_along_axis(x[:, start : start + LANES], lane, axis=1, mode="promise_in_bounds")
        for start in range(0, x.shape[1], LANES)
    ]

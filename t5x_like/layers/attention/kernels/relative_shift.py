"""From relative to absolute positions and back, in a Pallas kernel: each query has its own window.

Relative positions are padded so that query i's window of T columns begins at column S - i, where S
is a multiple of 128 and T is one too. So it lies in W = T + 128 columns that begin at a multiple of
128, and begins at 1 to 128 in them.

Suffixes: R queries at once, C columns of relative positions, T keys.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu

from t5x_like.layers.attention.kernels.kernel_parts import LANES

_BITS = LANES.bit_length() - 1


class Window(NamedTuple):
    """The columns that some queries read.

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
            rolled = [
                pltpu.roll(self._block(n, x_RC[rows]), self.keys, 1, stride=1, stride_axis=0)
                for n, rows in self._rows(len(x_RC))
            ]
            return jnp.concatenate(rolled)[:, : self.keys]
        x_RW = self._block(0, x_RC)
        for n in range(1, self._blocks):
            x_RW = jnp.where(self._in_block(n), self._block(n, x_RC), x_RW)
        begin_R1 = LANES - (self.positions & (LANES - 1))
        lane = jax.lax.broadcasted_iota(jnp.int32, (len(x_RC), LANES), 1)
        rolled = _rolled(x_RW, lane + begin_R1)
        within = lane + begin_R1 < LANES
        tiles = [jnp.where(within, *pair) for pair in itertools.pairwise(rolled)]
        return jnp.concatenate(tiles, axis=1)

    def to_columns(self, x_RT: jax.Array) -> jax.Array:
        """Float32 [R, C], zero outside each query's window: what `to_keys` does, transposed."""
        if self.positions is None:
            parts = []
            for n, rows in self._rows(len(x_RT)):
                part = x_RT[rows]
                begin = LANES - jax.lax.broadcasted_iota(jnp.int32, (len(part), 1), 0)
                parts.append(self._placed(n, _begun(part, begin)))
            return jnp.concatenate(parts)
        x_RW = _begun(x_RT, LANES - (self.positions & (LANES - 1)))
        x_RC = self._placed(0, x_RW)
        for n in range(1, self._blocks):
            x_RC = jnp.where(self._in_block(n), self._placed(n, x_RW), x_RC)
        return x_RC

    def _rows(self, queries: int) -> list[tuple[int, slice]]:
        """128 queries at a time that follow one another, each with the block they begin in."""
        starts = enumerate(range(0, queries, LANES))
        return [(self._blocks - 1 - n, slice(start, start + LANES)) for n, start in starts]

    @property
    def _blocks(self) -> int:
        """How many blocks of 128 columns a window may begin in."""
        return (self.columns.stop - self.columns.start - self.keys) // LANES

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


def windows(
    shape: tuple[int, int], positions: jax.Array | None, *, columns: int, at_once: int
) -> list[Window]:
    """The windows of the queries of a row, `at_once` (a multiple of 128) at a time.

    Args:
      shape: the number of queries, and T.
      positions: int32 [queries, 1]; None: the queries are the whole row.
      columns: C.
      at_once: R.
    """
    queries, keys = shape
    row_windows = []
    for start in range(0, queries, at_once):
        rows = slice(start, min(start + at_once, queries))
        if positions is None:
            blocks = -(-(rows.stop - start) // LANES) * LANES
            first = columns - keys - blocks - start
            row_windows.append(Window(rows, slice(first, first + keys + blocks), keys))
        else:
            row_windows.append(Window(rows, slice(0, columns), keys, positions[rows]))
    return row_windows


def _begun(x_RT: jax.Array, begin_R1: jax.Array) -> jax.Array:
    """[R, W]: each row begins at `begin`, between zeros."""
    lane = jax.lax.broadcasted_iota(jnp.int32, (len(x_RT), LANES), 1)
    rolled = _rolled(x_RT, lane - begin_R1)
    nothing = jnp.zeros_like(rolled[0])
    tiles = zip([*rolled, nothing], [nothing, *rolled], strict=True)
    return jnp.concatenate([jnp.where(lane >= begin_R1, *pair) for pair in tiles], axis=1)


def _rolled(x: jax.Array, lane: jax.Array) -> list[jax.Array]:
    """Each block of 128 lanes of `x`, where lane l of a row is what `lane` says, modulo 128."""
    lane = lane & (LANES - 1)
    return [
        jnp.take_along_axis(x[:, start : start + LANES], lane, axis=1, mode="promise_in_bounds")
        for start in range(0, x.shape[1], LANES)
    ]

"""Parts of our Pallas kernels of attention: joined heads in blocks of lanes, dropout, products.

Suffixes: L queries, M keys, J joined heads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from t5x_like.core.counter_random import hashed
from t5x_like.layers.attention.kernels.band import EVERYTHING, LANES, Band, Part
from t5x_like.layers.attention.kernels.kernel_mesh import usable_vmem
from t5x_like.layers.basics.dropout import Dropping

MASKED = -1e10
_STEP = 2 * 512 * 512
"""Queries times keys times heads of a grid step: its arrays fit the chip's memory, and it is long
beside what starting a step costs."""


class Operands(NamedTuple):
    """Arrays, or in the kernel their blocks.

    `q` is [B, L, J], `k` and `v` are [B, M, J]; `mask` is int8 [B|1, L|1, M], `bias` float32
    [B|1, H, L, M]. `seed` is that of `Draws`. A query sees a key where `segments` are equal, int32
    [B, L, 1] of queries and `key_segments` [B, 1, M] of keys; None: everywhere.
    """

    q: Any
    k: Any
    v: Any
    mask: Any
    bias: Any
    seed: Any
    segments: Any = None
    key_segments: Any = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a kernel, which stay the same from call to call.

    Attributes:
      width: the width of a head, a divisor or a multiple of 128.
      dropped: how many of 2**16 draws drop a probability.
      shared: whether all queries of a head drop the same keys.
      vmem: bytes of the chip's memory that it may take.
      band: what a query sees by the distance of a key.
      in_parts: whether parts of queries may be taken alone: a device has all queries of its rows.
      interpret: whether the kernel runs as plain JAX, on any device.
    """

    width: int
    dropped: int = 0
    shared: bool = False
    vmem: int = 64 * 2**20
    band: Band = EVERYTHING
    in_parts: bool = False
    interpret: bool = False

    @classmethod
    def of(cls, width: int, drop: Dropping | None, *, interpret: bool, **more: Any) -> Self:
        """The settings for heads of this width with this dropout, on the active devices."""
        return cls(
            width=width,
            dropped=0 if drop is None else drop.dropped,
            shared=drop is not None and drop.shared,
            vmem=usable_vmem(),
            interpret=interpret,
            **more,
        )

    @property
    def scale(self) -> float:
        """The factor of the probabilities that dropout keeps."""
        return 2**16 / (2**16 - self.dropped)


def unsuited_width(width: int) -> str | None:
    """Why blocks of lanes cannot hold heads of this width; None if they can."""
    if LANES % width and width % LANES:
        return f"a head's width must divide {LANES} or be a multiple of it, not {width}"
    return None


def lanes_of_block(joined: int, width: int) -> int:
    """How many lanes of J whole heads of this width take, at least 128; or all that there are."""
    block = max(LANES, width)
    return block if joined % block == 0 else joined


def lanes_of_step(joined: int, width: int, pairs: int) -> int:
    """How many lanes of J a grid step takes: whole heads, of `pairs` queries and keys each."""
    block = lanes_of_block(joined, width)
    blocks = joined // block
    per_block = pairs * (block // width)
    fitting = range(1, max(_STEP // per_block, 1) + 1)
    return max(n for n in fitting if blocks % n == 0) * block


class Head(NamedTuple):
    """A head of a step: its number there, its block of lanes, and which of these are its own."""

    number: int
    lanes: slice
    own: jax.Array | None

    def of(self, x: jax.Array) -> jax.Array:
        """`x`, with zeros in the lanes of other heads."""
        return x if self.own is None else jnp.where(self.own, x, jnp.zeros((), x.dtype))

    def put(self, whole: jax.Array | None, part: jax.Array) -> jax.Array:
        """`whole` with the lanes of this head from `part`."""
        return part if whole is None or self.own is None else jnp.where(self.own, part, whole)


def head_blocks(lanes: int, width: int) -> Iterator[list[Head]]:
    """The heads of a step, block by block."""
    for start in range(0, lanes, max(LANES, width)):
        stop = min(start + max(LANES, width), lanes)
        lane = jax.lax.broadcasted_iota(jnp.int32, (1, stop - start), 1)
        alone = stop - start == width
        yield [
            Head(
                (start + first) // width,
                slice(start, stop),
                None if alone else (lane >= first) & (lane < first + width),
            )
            for first in range(0, stop - start, width)
        ]


class Draws(NamedTuple):
    """Dropout of a head's probabilities in a step, as `dropout.dropout` drops of [B, H, L, M].

    Attributes:
      seed: seven int32: both words of a key of `counter_random`; the numbers of the row and of the
        first head of this grid step (`of_step`); how many heads there are on all devices; the
        number of the first query, and how many queries there are on all.
      number: that of the head, in this step.
      keys: M.
    """

    seed: Any
    number: jax.Array | int
    keys: int

    def of_part(self, settings: Settings, part: Part) -> jax.Array | None:
        """Which probabilities of a part's queries and keys stay; None if all do."""
        if not settings.dropped or part.keys == self.keys:
            return self.kept(settings, (part.queries, part.keys), first=part.query)
        if 2 * part.keys > self.keys:
            keep = self.kept(settings, (part.queries, self.keys), first=part.query)
            return None if keep is None else keep[:, part.columns]
        half = -(-self.keys // 2)
        queries = 1 if settings.shared else part.queries
        column = part.key + jax.lax.broadcasted_iota(jnp.int32, (queries, part.keys), 1)
        place = jnp.where(column >= half, column - half, column)
        low, high = halves(self._words(place, half, part.query, shared=settings.shared))
        return jnp.where(column >= half, high, low) >= settings.dropped

    def kept(
        self, settings: Settings, shape: tuple[int, int], *, first: int = 0
    ) -> jax.Array | None:
        """Which probabilities stay, of `shape` queries and keys from query `first` on; None: all.

        Keys after the M are filled up: nothing follows from what they get. A random word decides
        about two keys, which lie half of all keys apart.
        """
        if not settings.dropped:
            return None
        queries, columns = (1 if settings.shared else shape[0]), shape[1]
        half = -(-self.keys // 2)
        column = jax.lax.broadcasted_iota(jnp.int32, (queries, columns), 1)
        if columns % LANES:
            place = jnp.where(column >= half, column - half, column)
            drawn = self._words(place, half, first, shared=settings.shared)
            low, high = halves(drawn)
            return jnp.where(column >= half, high, low) >= settings.dropped
        # Where blocks of lanes are whole, both halves are drawn at once.
        blocks, whole = -(-half // LANES) * LANES, half // LANES * LANES
        drawn = self._words(column[:, :blocks], half, first, shared=settings.shared)
        low, high = halves(drawn)
        if whole < half or columns > 2 * blocks:
            rest = ((0, 0), (0, columns - blocks))
            high = pltpu.roll(jnp.pad(high, rest), half, 1)
            mixed = slice(whole, whole + LANES)
            both = jnp.where(column[:, mixed] >= half, high[:, mixed], low[:, mixed])
            parts = [low[:, :whole], both, high[:, whole + LANES :]]
        else:
            parts = [low, high]
        used = [part for part in parts if part.shape[1]]
        return jnp.concatenate(used, axis=1) >= settings.dropped

    def _words(self, column: jax.Array, half: int, first: int, *, shared: bool) -> jax.Array:
        """Random words, uint32, for the columns below `half` of each query."""
        low, high, row, head, heads, first_query, queries = self.seed
        before = row * heads + head + self.number
        place = column + jax.lax.broadcasted_iota(jnp.int32, column.shape, 0) * half
        place += (before if shared else before * queries + first_query + first) * half
        return hashed(place.astype(jnp.uint32), low.astype(jnp.uint32), high.astype(jnp.uint32))


def of_step(seed: Any, heads: int) -> tuple[Any, ...]:
    """The seed of a grid step of so many heads, from that of a device, whose first ones it has."""
    low, high, row, head, *rest = (seed[n] for n in range(7))
    return low, high, row + pl.program_id(1), head + pl.program_id(0) * heads, *rest


def halves(words: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The lower and the upper 16 bits, int32."""
    return (words & jnp.uint32(2**16 - 1)).astype(jnp.int32), (words >> 16).astype(jnp.int32)


def dropped(x: jax.Array, keep: jax.Array | None) -> jax.Array:
    """`x`, with zeros where it does not stay."""
    return x if keep is None else jnp.where(keep, x, 0.0)


def product(a: jax.Array, b: jax.Array, over: tuple[int, int]) -> jax.Array:
    """Sums over a dimension of each, float32."""
    return jax.lax.dot_general(
        a, b, (((over[0],), (over[1],)), ((), ())), preferred_element_type=jnp.float32
    )

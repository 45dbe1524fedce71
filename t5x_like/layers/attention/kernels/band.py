"""The band of keys that queries see by distance alone, and the parts that are left to compute.

Suffixes: L queries, M keys.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from t5x_like.layers.attention.masks import Mask

LANES = 128
ROWS = 256
"""Queries of a part: with fewer, less is computed in vain, but the matrix unit has shorter rows."""


class Band(NamedTuple):
    """How many positions before and after a query are seen; None: all of them.

    `step` is the distance between those that are seen.
    """

    before: int | None = None
    after: int | None = None
    step: int = 1

    def seen(self, query: Any, key: Any, shape: tuple[int, int]) -> jax.Array | None:
        """Bool [L, M], of `shape`, for queries and keys from these positions on; None: all."""
        if self == EVERYTHING:
            return None
        distance = query - key + jax.lax.broadcasted_iota(jnp.int32, shape, 0)
        distance -= jax.lax.broadcasted_iota(jnp.int32, shape, 1)
        sides = [] if self.before is None else [distance <= self.before]
        sides += [] if self.after is None else [distance >= -self.after]
        sides += [] if self.step == 1 else [distance % self.step == 0]
        return functools.reduce(jnp.logical_and, sides)

    def blocks_of_keys(self, query: Any, queries: int, size: int, blocks: int) -> tuple[Any, Any]:
        """The first of some blocks of keys that queries from this position on see, and its end.

        There are `queries` of them, and `blocks` of keys of this `size`. At least one is left, so
        that a query that sees nothing has a mean of some values.
        """
        return _blocks(query, queries, size, blocks, before=self.before, after=self.after)

    def blocks_of_queries(self, key: Any, keys: int, size: int, blocks: int) -> tuple[Any, Any]:
        """The same for queries that see some keys."""
        return _blocks(key, keys, size, blocks, before=self.after, after=self.before)

    def parts(self, queries: int, keys: int) -> Parts:
        """Parts that cover what is seen, each of whole lanes; one part where it is not less."""
        if self == EVERYTHING or keys % LANES or queries % ROWS or queries == ROWS:
            return whole(queries, keys)
        if self.before is not None and self.after is not None:
            before = -(-self.before // LANES) * LANES
            size = before + ROWS + -(-self.after // LANES) * LANES
            if size < keys:
                return Parts.moving(queries // ROWS, before=before, size=size, keys=keys)
        parts = []
        for first in range(0, queries, ROWS):
            begin = 0 if self.before is None else max(0, first - self.before)
            end = keys if self.after is None else min(keys, first + ROWS + self.after)
            begin, end = begin // LANES * LANES, -(-end // LANES) * LANES
            if begin >= end:  # it sees nothing: a mean of some values
                begin, end = 0, LANES
            parts.append(Part(first, ROWS, begin, end - begin))
        return Parts(parts)


def _blocks(
    first: Any, count: int, size: int, blocks: int, *, before: int | None, after: int | None
) -> tuple[Any, Any]:
    begin: Any = 0
    end: Any = blocks
    if before is not None:
        begin = jnp.clip((first - before) // size, 0, blocks - 1)
    if after is not None:
        end = jnp.clip((first + count - 1 + after) // size + 1, begin + 1, blocks)
    return begin, end


EVERYTHING = Band()


class Part(NamedTuple):
    """`queries` queries from number `query` on, and `keys` keys from number `key` on."""

    query: Any
    queries: int
    key: Any
    keys: int

    @property
    def rows(self) -> Any:
        """The index of its queries in a block."""
        return pl.ds(self.query, self.queries)

    @property
    def columns(self) -> Any:
        return pl.ds(self.key, self.keys)

    @property
    def pairs(self) -> int:
        return self.queries * self.keys


class Parts:
    """Parts that a kernel takes one after another.

    Many parts of one size are a loop in the program, whose code is that of one of them: without it
    a window in a row of 8,192 tokens took the compiler minutes.
    """

    def __init__(
        self, parts: Sequence[Part], *, of_number: Callable[[Any], Part] | None = None
    ) -> None:
        self._parts, self._of_number = parts, of_number

    @classmethod
    def moving(cls, count: int, *, before: int, size: int, keys: int) -> Parts:
        """Parts of `ROWS` queries, each with `size` keys from `before` keys before its first on.

        At the ends of the row, the keys stay inside it: the band hides what is too many.
        """

        def part(n: Any) -> Part:
            first = pl.multiple_of(n * ROWS, ROWS)
            key = pl.multiple_of(jnp.clip(first - before, 0, keys - size), LANES)
            return Part(first, ROWS, key, size)

        return cls([Part(0, ROWS, 0, size)] * count, of_number=part)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def largest(self) -> int:
        """Pairs of the largest part."""
        return max(part.pairs for part in self._parts)

    @property
    def pairs(self) -> int:
        """Pairs of all parts together."""
        return sum(part.pairs for part in self._parts)

    def each(self, do: Callable[[Part], None]) -> None:
        """Does it for each part, in their order."""
        of_number = self._of_number
        if of_number is None:
            for part in self._parts:
                do(part)
        else:
            jax.lax.fori_loop(0, len(self), lambda n, _: do(of_number(n)), None)


def whole(queries: int, keys: int) -> Parts:
    """All queries and keys as one part."""
    return Parts([Part(0, queries, 0, keys)])


def band_of(mask: Mask | None) -> Band:
    """The band of a mask, by distance alone; `EVERYTHING` where other conditions lift it."""
    if mask is None or mask.itself:
        return EVERYTHING
    if mask.queries.prefix is not None or mask.chooses or not mask.by_place:
        return EVERYTHING
    before, after = mask.reach or (None, None)
    if mask.causal:
        after = 0
    return Band(before, after, 1 if mask.window is None else mask.dilation)

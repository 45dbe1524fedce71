"""The band of keys that queries see by distance alone, and the parts that are left to compute.

Suffixes: L queries, M keys.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

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

    def parts(self, queries: int, keys: int) -> Sequence[Part]:
        """Parts that cover what is seen, each of whole lanes; one part where it is not less."""
        whole = [Part(0, queries, 0, keys)]
        if self == EVERYTHING or keys % LANES or queries % ROWS or queries == ROWS:
            return whole
        parts = []
        for first in range(0, queries, ROWS):
            begin = 0 if self.before is None else max(0, first - self.before)
            end = keys if self.after is None else min(keys, first + ROWS + self.after)
            begin, end = begin // LANES * LANES, -(-end // LANES) * LANES
            if begin >= end:  # it sees nothing: a mean of some values
                begin, end = 0, LANES
            parts.append(Part(first, ROWS, begin, end - begin))
        return parts


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

    query: int
    queries: int
    key: int
    keys: int

    @property
    def rows(self) -> slice:
        return slice(self.query, self.query + self.queries)

    @property
    def columns(self) -> slice:
        return slice(self.key, self.key + self.keys)

    @property
    def pairs(self) -> int:
        return self.queries * self.keys

    def of(self, x: Any) -> Any:
        """The slice of an array [L|1, M] that belongs to the part."""
        return x[self.rows if x.shape[0] > 1 else slice(None), self.columns]


def band_of(mask: Mask | None) -> Band:
    """The band of a mask, by distance alone; `EVERYTHING` where other conditions lift it."""
    if mask is None or mask.itself:
        return EVERYTHING
    lifted = mask.queries.prefix is not None or mask.queries.chosen is not None
    if lifted or not mask.by_place:
        return EVERYTHING
    before, after = mask.reach or (None, None)
    if mask.causal:
        after = 0
    return Band(before, after, 1 if mask.window is None else mask.dilation)

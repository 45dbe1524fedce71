"""The band of keys that queries see by distance alone, and the parts that are left to compute.

Suffixes: L queries, M keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from t5x_like.layers.attention.masks import Mask

LANES = 128
ROWS = 256
"""Queries of a part: with fewer, less is computed in vain, but the matrix unit has shorter rows."""


class Band(NamedTuple):
    """How many positions before and after a query are seen; None: all of them."""

    before: int | None = None
    after: int | None = None

    def seen(self, part: Part, first_query: Any) -> jax.Array | None:
        """Bool [L, M] of a part; `first_query` is the position of query 0 of all parts."""
        if self == EVERYTHING:
            return None
        shape = (part.queries, part.keys)
        distance = first_query + part.query + jax.lax.broadcasted_iota(jnp.int32, shape, 0)
        distance -= part.key + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
        sides = [] if self.before is None else [distance <= self.before]
        sides += [] if self.after is None else [distance >= -self.after]
        return sides[0] if len(sides) == 1 else sides[0] & sides[1]

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
    shifted = mask.queries.positions is not None or mask.keys.positions is not None
    lifted = mask.queries.prefix is not None or mask.queries.chosen is not None
    if shifted or lifted:
        return EVERYTHING
    before, after = mask.window or (None, None)
    if mask.causal:
        after = 0
    return Band(before, after)

"""Which keys a query may look at, as a description: a kernel forms of it what it needs.

Suffixes: B batch, L queries, M keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Traits(NamedTuple):
    """Traits of the queries, or of the keys, of each row; None where there is nothing to say.

    Attributes:
      positions: int32 [L] or [B, L]; None: 0, 1, 2, ... Tokens of a segment lie side by side, and
        their positions are consecutive: so a distance within it is one of places, too.
      segments: int32 [B, L]. Queries see keys of their own segment.
      prefix: bool [B, L]. Inside a prefix, keys after a query are seen too.
      chosen: bool [B, L]. Chosen queries see all, and all see chosen keys, whatever the window;
        None: none of them is.
      order: int32 [B, L]. Queries see keys of a lower order.
    """

    positions: jax.Array | None = None
    segments: jax.Array | None = None
    prefix: jax.Array | None = None
    chosen: jax.Array | None = None
    order: jax.Array | None = None


ALIKE = Traits()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Mask:
    """A pair of a query and a key is seen where every condition that is given holds.

    Attributes:
      present: [B, M], above 0 for keys that count; the others are padding.
      causal: whether keys after a query are hidden.
      window: how many positions before and after a query are seen; None: all.
      dilation: the distance between positions of a window that are seen: with 3, those 3, 6, 9, ...
        positions away (Longformer, Beltagy et al., 2020, section 3.1).
      most_chosen: how many queries, and how many keys, of a row are chosen at most; None: that is
        not known. With more than are promised, values are NaN.
      itself: whether a query sees its own position, whatever the other conditions say.
      queries: traits of the queries, and
      keys: of the keys. A condition on pairs needs both, but for `chosen`.
      pairs: bool, broadcasts to [B, H, L, M]: a condition that no description says.
    """

    present: jax.Array | None = None
    causal: bool = dataclasses.field(default=False, metadata={"static": True})
    window: tuple[int, int] | None = dataclasses.field(default=None, metadata={"static": True})
    dilation: int = dataclasses.field(default=1, metadata={"static": True})
    most_chosen: int | None = dataclasses.field(default=None, metadata={"static": True})
    itself: bool = dataclasses.field(default=False, metadata={"static": True})
    queries: Traits = ALIKE
    keys: Traits = ALIKE
    pairs: jax.Array | None = None

    @property
    def reach(self) -> tuple[int, int] | None:
        """How far the window reaches before and after a query; None: there is none."""
        if self.window is None:
            return None
        before, after = (side * self.dilation for side in self.window)
        return before, 0 if self.causal and self.queries.prefix is None else after

    @property
    def chooses(self) -> bool:
        """Whether queries or keys may be chosen."""
        return self.queries.chosen is not None or self.keys.chosen is not None

    @property
    def by_place(self) -> bool:
        """Whether the distance of a query and a key that it sees is that of their places.

        Positions without segments do not say so, nor do those of some queries alone.
        """
        of_queries, of_keys = self.queries.positions, self.keys.positions
        if of_queries is None or of_keys is None:
            return of_queries is of_keys
        in_segments = self.queries.segments is not None and self.keys.segments is not None
        return in_segments and of_queries.shape == of_keys.shape

    def dense(self, num_queries: int, num_keys: int) -> jax.Array | None:
        """Bool [B|1, 1|H, L|1, M], true where a query sees a key; None: every query sees all."""
        queries, keys = self.queries, self.keys
        conditions = [
            None if self.present is None else (self.present > 0)[:, None, None, :],
            _paired(queries.segments, keys.segments, jnp.equal),
            _paired(queries.order, keys.order, jnp.greater),
            self._causal(num_queries, num_keys),
            self._in_window(num_queries, num_keys),
            self.pairs,
        ]
        seen = None
        for condition in conditions:
            if condition is not None:
                seen = condition if seen is None else seen & condition
        if seen is None or not self.itself:
            return seen
        return seen | (self._distance(num_queries, num_keys) == 0)

    def _distance(self, num_queries: int, num_keys: int) -> jax.Array:
        """A query's position minus a key's, int32 [B|1, 1, L, M]."""
        at_L = _positions(self.queries.positions, num_queries)
        at_M = _positions(self.keys.positions, num_keys)
        return (at_L[:, :, None] - at_M[:, None, :])[:, None]

    def _causal(self, num_queries: int, num_keys: int) -> jax.Array | None:
        if not self.causal:
            return None
        before = self._distance(num_queries, num_keys) >= 0
        both = _paired(self.queries.prefix, self.keys.prefix, jnp.logical_and)
        return before if both is None else before | both

    def _in_window(self, num_queries: int, num_keys: int) -> jax.Array | None:
        if self.window is None:
            return None
        before, after = (side * self.dilation for side in self.window)
        distance = self._distance(num_queries, num_keys)
        near = (distance <= before) & (distance >= -after)
        if self.dilation > 1:
            near &= distance % self.dilation == 0
        if self.queries.chosen is not None:
            near |= self.queries.chosen[:, None, :, None]
        return near if self.keys.chosen is None else near | self.keys.chosen[:, None, None, :]


class Chosen(NamedTuple):
    """The places of G positions [B, G], which of them exist, and whether there are no more [B]."""

    places: jax.Array
    exists: jax.Array
    all_there: jax.Array

    @classmethod
    def of_row(cls, chosen_BL: jax.Array, most: int) -> Chosen:
        """The first `most` of the positions that are chosen."""
        most = min(most, chosen_BL.shape[1])
        exists, places = jax.lax.top_k(chosen_BL.astype(jnp.int32), most)
        return cls(places, exists > 0, chosen_BL.sum(axis=1) <= most)

    def of(self, x: jax.Array) -> jax.Array:
        """Those of an array [B, L, ...]: [B, G, ...]."""
        places = self.places.reshape(*self.places.shape, *[1] * (x.ndim - 2))
        return jnp.take_along_axis(x, places, axis=1)

    def put(self, x: jax.Array, chosen: jax.Array) -> jax.Array:
        """`x`, [B, L, ...], with others, [B, G, ...], in their places."""
        exists = self.exists.reshape(*self.exists.shape, *[1] * (x.ndim - 2))
        rows = jnp.arange(len(x))[:, None]
        return x.at[rows, self.places].set(jnp.where(exists, chosen, self.of(x)))

    def or_nan(self, x: jax.Array) -> jax.Array:
        """`x`, [B, ...], with NaN in the rows that have more positions than these."""
        return jnp.where(self.all_there.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.nan)


def _positions(positions: jax.Array | None, length: int) -> jax.Array:
    """Int32 [B|1, L]."""
    if positions is None:
        return jnp.arange(length)[None]
    return positions if positions.ndim == 2 else positions[None]


def _paired(
    of_queries: jax.Array | None,
    of_keys: jax.Array | None,
    compare: Callable[[jax.Array, jax.Array], jax.Array],
) -> jax.Array | None:
    """[B, 1, L, M] from [B, L] and [B, M]."""
    if of_queries is None or of_keys is None:
        return None
    return compare(of_queries[:, :, None], of_keys[:, None, :])[:, None]


def visible_pairs(queries_BL: jax.Array, keys_BM: jax.Array, *, causal: bool = False) -> jax.Array:
    """How many (query, key) pairs of equal, nonzero segment id there are: float32 [].

    With `causal`, only those whose key is not after the query.
    """
    pairs_BLM = (queries_BL[:, :, None] == keys_BM[:, None, :]) & (keys_BM > 0)[:, None, :]
    if causal:
        pairs_BLM = jnp.tril(pairs_BLM)
    return pairs_BLM.sum(axis=(1, 2)).astype(jnp.float32).sum()


def near_pairs(segments_BL: jax.Array, window: tuple[int, int]) -> jax.Array:
    """The same for a row that reads itself through a window, in time that grows with L.

    Tokens of a segment lie side by side.
    """
    length = segments_BL.shape[1]
    places_L = jnp.arange(length)
    begins_BL = jnp.pad(segments_BL[:, 1:] != segments_BL[:, :-1], ((0, 0), (1, 0)))
    first_BL = jax.lax.cummax(jnp.where(begins_BL, places_L, 0), axis=1)
    ends_BL = jnp.pad(begins_BL[:, 1:], ((0, 0), (0, 1)), constant_values=True)
    last_BL = jax.lax.cummin(jnp.where(ends_BL, places_L, length), axis=1, reverse=True)
    before, after = window
    pairs_BL = 1 + jnp.minimum(places_L - first_BL, before)
    pairs_BL += jnp.minimum(last_BL - places_L, after)
    return jnp.where(segments_BL > 0, pairs_BL, 0).sum(axis=1).astype(jnp.float32).sum()

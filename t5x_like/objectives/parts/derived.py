"""Tables that are computed once for a vocabulary and kept, for speed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

Table = TypeVar("Table")
KEPT = 16


def once_per_vocabulary(derive: Callable[[TokenIds], Table]) -> Callable[[TokenIds], Table]:
    """`derive`, called once for each vocabulary. Its result is shared and must not be changed.

    `TokenIds` is immutable and is told apart by identity. This is safe because the object is kept
    with its table, so no other object has its address. At most `KEPT` tables are kept.
    """
    known: dict[int, tuple[TokenIds, Table]] = {}

    @functools.wraps(derive)
    def derived(ids: TokenIds) -> Table:
        entry = known.get(id(ids))
        if entry is None:
            if len(known) >= KEPT:
                known.clear()
            entry = known[id(ids)] = (ids, derive(ids))
        return entry[1]

    return derived

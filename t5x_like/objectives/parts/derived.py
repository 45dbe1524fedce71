"""Tables computed once for a vocabulary and kept, since a call on an example has no time for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from t5x_like.core.protocols import TokenIds

Table = TypeVar("Table")
KEPT = 16


def once_per_vocabulary(derive: Callable[[TokenIds], Table]) -> Callable[[TokenIds], Table]:
    """`derive`, called once for each object: what it returns is shared, so nobody may change it.

    `TokenIds` cannot be changed and is told apart by identity here, which is safe as the object is
    kept with its table: no other can be at its address meanwhile. A few are kept, not all.
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

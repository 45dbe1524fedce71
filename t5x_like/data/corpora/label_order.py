"""The order of the names of labels, which numbers them."""

from __future__ import annotations

from collections.abc import Collection


def in_order(labels: Collection[str]) -> tuple[str, ...]:
    """Names by value where all are whole numbers, else by the alphabet."""
    whole = all(name.removeprefix("-").isdecimal() for name in labels)
    return tuple(sorted(labels, key=int) if whole else sorted(labels))

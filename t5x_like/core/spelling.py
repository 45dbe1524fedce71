"""The end of a message about an unknown name: the names that may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 200
"""Characters of a name that are compared: files may have names of any length."""


def alike(name: str, known: Iterable[str], *, at_most: int = 4) -> list[str]:
    """The `known` that are spelt like `name`, or else contain its last part; nearest first."""
    known, name = list(dict.fromkeys(known)), name[:_LONGEST]
    short = difflib.get_close_matches(name, known, n=at_most, cutoff=0.5)
    if not short:
        tail = name.rpartition("/")[2]
        short = [one for one in known if tail and tail in one][:at_most]
    return short


def nearest(name: str, known: Iterable[str], *, of: str = "names") -> str:
    """`; nearest: a, b`, or `; known names: ...` where none is near, or nothing at all."""
    known = list(known)
    if short := alike(name, known):
        return "; nearest: " + ", ".join(short)
    return f"; known {of}: " + ", ".join(known[:40]) if known else ""

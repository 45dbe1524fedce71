"""Parts of messages about names: which may have been meant, which differ."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_LONGEST = 200
"""Characters of a name that are compared: files may have names of any length."""


def alike(name: str, known: Iterable[str], *, at_most: int = 4) -> list[str]:
    """The `known` that are spelt like `name`, or else contain its last part; nearest first."""
    known, name = list(dict.fromkeys(known)), name[:_LONGEST]
    short = difflib.get_close_matches(name, known, n=at_most, cutoff=0.5)
    if not short:
        tail = name.rpartition("/")[2]
        short = [word for word in known if tail and tail in word][:at_most]
    return short


def nearest(name: str, known: Iterable[str], *, of: str = "names") -> str:
    """`; nearest: a, b`, or `; known names: ...` where none is near, or nothing at all."""
    known = list(known)
    if short := alike(name, known):
        return "; nearest: " + ", ".join(short)
    return f"; known {of}: " + ", ".join(known[:40]) if known else ""


def some(parts: Sequence[str], *, between: str = ", ") -> str:
    """The first three, and how many more there are."""
    more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
    return between.join(parts[:3]) + more


def differences(first: Mapping[str, Any], second: Mapping[str, Any], text: str) -> str:
    """Some of the names whose values differ: each `text`, with {name}, {first} and {second}."""
    different = [
        text.format(name=name, first=first.get(name, "absent"), second=second.get(name, "absent"))
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name)
    ]
    return some(different, between="; ")

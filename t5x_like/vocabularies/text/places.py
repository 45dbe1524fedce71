"""The places of tokens in a text, counted in characters."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def trimmed(text: str, spans: Iterable[tuple[int, int]]) -> np.ndarray:
    """Spans of a text without the white space around them: int32 [n, 2]."""
    places = []
    for begin, end in spans:
        inside = text[begin:end]
        begin += len(inside) - len(inside.lstrip())
        places.append((begin, max(begin, begin + len(inside.strip()))))
    return np.array(places, np.int32).reshape(-1, 2)


def of_bytes(text: str) -> list[int]:
    """The character at each byte of a text in UTF-8, and then the number of characters."""
    places = [n for n, character in enumerate(text) for _ in character.encode()]
    return [*places, len(text)]

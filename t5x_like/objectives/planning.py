"""What plans of samples share: segments cut in pieces, whole random numbers, rows in lists."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

ROWS = 4096
NUMBERS = 4096
"""How many random numbers to draw at a time."""


def in_pieces(bounds: np.ndarray, longest: int, piece: int) -> np.ndarray:
    """The segments of a document, those of more than `longest` tokens cut every `piece` tokens.

    int64 [S + 1] offsets to int64 [P + 1], P >= S; text without line breaks is one such segment.
    """
    lengths = bounds[1:] - bounds[:-1]
    if lengths.max() <= longest:
        return bounds
    counts = np.where(lengths > longest, -(-lengths // piece), 1)
    place_in_segment = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.append(np.repeat(bounds[:-1], counts) + piece * place_in_segment, bounds[-1])


def between(low: int, high: int, draws: Iterator[float]) -> int:
    """A whole number from `low` to `high`, both included, from one of `drawing.uniforms`."""
    return low + int(next(draws) * (high - low + 1))


def in_lists(rows: Iterable[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """The rows in order, at most `ROWS` at a time."""
    rest = iter(rows)
    while some := list(itertools.islice(rest, ROWS)):
        yield some

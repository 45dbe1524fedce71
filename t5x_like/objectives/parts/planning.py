"""What plans of samples share: whole words, segments in pieces, whole random numbers, rows."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from t5x_like.objectives.parts.geometry import Sentences

ROWS = 4096
NUMBERS = 4096
"""How many random numbers to draw at a time."""


WINDOW = 16
"""Tokens to look at together for the start of a word; most words have fewer."""
TOKENS = 4096
"""To look at together for all starts of words."""


def word_before(sentences: Sentences, start: int, end: int) -> int:
    """The last offset above `start`, and `end` at most, at which a word starts; else `end`.

    There a text that begins at `start` can be cut so that no word is.
    """
    last = min(end, sentences.total - 1)
    while start < last and end < sentences.total:
        first = max(start + 1, last - WINDOW + 1)
        found = sentences.word_starts(first, last + 1).nonzero()[0]
        if len(found):
            return first + int(found[-1])
        last = first - 1
    return end


def word_after(sentences: Sentences, start: int, end: int) -> int:
    """The first offset from `start` on, and below `end`, at which a word starts; else `start`."""
    for first in range(start, end, WINDOW):
        found = sentences.word_starts(first, min(first + WINDOW, end)).nonzero()[0]
        if len(found):
            return first + int(found[0])
    return start


def in_pieces(sentences: Sentences, document: int, *, longest: int, piece: int) -> np.ndarray:
    """Where a document's segments start, those of more than `longest` tokens cut in pieces.

    A piece has `piece` tokens at most and ends where a word does, unless the word is longer.
    int64 [P + 1]: offsets, then the document's end; text without line breaks is one such segment.
    """
    bounds = sentences[document]
    long = (bounds[1:] - bounds[:-1] > longest).nonzero()[0].tolist()
    if not long:
        return bounds
    cuts: list[int] = []
    words: list[int] = []
    known, last = bounds[[0, -1]].tolist()
    for start, end in zip(bounds[long].tolist(), bounds[np.add(long, 1)].tolist(), strict=True):
        at = start
        while end - at > piece:
            if known <= at + piece:  # reads many at a time
                known = min(at + 1 + max(piece, TOKENS), last)
                words = (at + 1 + sentences.word_starts(at + 1, known).nonzero()[0]).tolist()
            before = bisect.bisect_right(words, at + piece)
            found = before and words[before - 1] > at
            at = words[before - 1] if found else at + piece
            cuts.append(at)
    return np.sort(np.concatenate([bounds, np.array(cuts, np.int64)]), kind="stable")


def between(low: int, high: int, draws: Iterator[float]) -> int:
    """A whole number from `low` to `high`, both included, from one of `drawing.uniforms`."""
    return low + int(next(draws) * (high - low + 1))


def in_lists(rows: Iterable[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """The rows in order, at most `ROWS` at a time."""
    rest = iter(rows)
    while some := list(itertools.islice(rest, ROWS)):
        yield some

"""Functions that plans of samples share: starts of words, pieces of segments, random numbers."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from t5x_like.objectives.parts.geometry import Sentences

ROWS = 4096
"""Rows of a plan in one list."""
NUMBERS = 4096
"""Random numbers to draw together."""


WINDOW = 16
"""Tokens to read together when one start of a word is sought; most words have fewer."""
TOKENS = 4096
"""Tokens to read together when all starts of words are sought."""


def word_before(sentences: Sentences, start: int, end: int) -> int:
    """The last start of a word above `start` and at most `end`; `end` if there is none.

    A text that begins at `start` and ends there holds whole words.
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
    """The first start of a word from `start` on and below `end`; `start` if there is none."""
    for first in range(start, end, WINDOW):
        found = sentences.word_starts(first, min(first + WINDOW, end)).nonzero()[0]
        if len(found):
            return first + int(found[0])
    return start


def in_pieces(sentences: Sentences, document: int, *, longest: int, piece: int) -> np.ndarray:
    """Where segments and pieces of segments start, and the document's end: int64 [P + 1].

    Segments of more than `longest` tokens are cut in pieces. A piece has at most `piece` tokens and
    ends where a word does, unless the word is longer. Text without line breaks is one segment.
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
            if known <= at + piece:  # many tokens are read together
                known = min(at + 1 + max(piece, TOKENS), last)
                words = (at + 1 + sentences.word_starts(at + 1, known).nonzero()[0]).tolist()
            before = bisect.bisect_right(words, at + piece)
            found = before and words[before - 1] > at
            at = words[before - 1] if found else at + piece
            cuts.append(at)
    return np.sort(np.concatenate([bounds, np.array(cuts, np.int64)]), kind="stable")


def random_integer(low: int, high: int, draws: Iterator[float]) -> int:
    """A random integer from `low` to `high`, both included; `draws` are `drawing.uniforms`."""
    return low + int(next(draws) * (high - low + 1))


def in_lists(rows: Iterable[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """The rows in order, in lists of at most `ROWS`."""
    rest = iter(rows)
    while some := list(itertools.islice(rest, ROWS)):
        yield some

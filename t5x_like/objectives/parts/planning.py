"""Functions that plans of samples share: pieces of segments, random numbers, rows."""

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
TOKENS = 4096
"""Tokens to read together when all starts of words are sought."""


def in_pieces(sentences: Sentences, bounds: np.ndarray, *, longest: int, piece: int) -> np.ndarray:
    """Where segments and pieces of segments start, and where the last ends: int64 [P + 1].

    `bounds` are those of a document, or consecutive ones of it. Segments of more than `longest`
    tokens are cut in pieces. A piece has at most `piece` tokens and ends where a word does, unless
    the word is longer. Text without line breaks is one segment.
    """
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
            has_word = before and words[before - 1] > at
            at = words[before - 1] if has_word else at + piece
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

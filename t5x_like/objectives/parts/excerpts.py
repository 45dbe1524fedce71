"""Consecutive segments of a stream as arrays, for plans that make many samples at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from t5x_like.objectives.parts.geometry import Sentences


@dataclasses.dataclass(frozen=True)
class Excerpt:
    """Windows of a stream, each of some consecutive segments, one after another.

    Positions count their tokens. Between a window's last token and the next one's first is a
    position, its end.

    Attributes:
      bounds: int64 [S + W]: the positions at which the S segments start, and the end of each of the
        W windows after its segments. They ascend strictly.
      firsts: int64 [W]: where a window's first segment is in `bounds`.
      lasts: int64 [W]: where its end is.
      shifts: int64 [W]: offset in the stream less position.
      word_at_most: int32 [positions]: the last position up to this one where a word starts.
      word_at_least: int32 [positions]: the first position from this one on where a word starts.
    """

    bounds: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray
    shifts: np.ndarray
    word_at_most: np.ndarray
    word_at_least: np.ndarray

    @classmethod
    def of(cls, sentences: Sentences, windows: Sequence[np.ndarray]) -> Excerpt:
        """From the offsets of each window's segments and its end, as `Sentences` gives them."""
        sizes = np.array([window[-1] - window[0] + 1 for window in windows], np.int64)
        starts = np.cumsum(sizes) - sizes
        shifts = np.array([window[0] for window in windows], np.int64) - starts
        counts = np.array([len(window) for window in windows], np.int64)
        begins = _word_starts(sentences, windows, sizes)
        positions = np.arange(len(begins), dtype=np.int32)
        before = np.where(begins, positions, -1)
        after = np.where(begins, positions, len(begins))
        return cls(
            bounds=np.concatenate(windows) - np.repeat(shifts, counts),
            firsts=np.cumsum(counts) - counts,
            lasts=np.cumsum(counts) - 1,
            shifts=shifts,
            word_at_most=np.maximum.accumulate(before),
            word_at_least=np.minimum.accumulate(after[::-1])[::-1],
        )

    def word_before(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The last start of a word above `start` and at most `end`; `end` if there is none."""
        found = self.word_at_most[end]
        return np.where(found > start, found, end)

    def word_after(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The first start of a word from `start` on and below `end`; `start` if there is none."""
        found = self.word_at_least[start]
        return np.where(found < end, found, start)


def _word_starts(
    sentences: Sentences, windows: Sequence[np.ndarray], sizes: np.ndarray
) -> np.ndarray:
    """bool [positions]; a window's end is where the next token of the stream is, or where it ends.

    Windows that lie side by side are read together.
    """
    edges = np.array([[window[0], window[-1]] for window in windows], np.int64)
    apart = np.flatnonzero(edges[1:, 0] != edges[:-1, 1]) + 1
    parts = []
    for some in np.split(np.arange(len(windows)), apart):
        first, last = edges[some[0], 0], edges[some[-1], 1]
        begins = sentences.word_starts(first, min(last + 1, sentences.total))
        begins = np.append(begins, np.ones(last + 1 - first - len(begins), bool))
        # Each window has a position more than tokens.
        extra = np.repeat(np.arange(len(some)), sizes[some])
        parts.append(begins[np.arange(len(extra)) - extra])
    return np.concatenate(parts)

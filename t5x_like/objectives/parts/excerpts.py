"""Consecutive segments of a stream as arrays, for plans that make many samples at once."""

from __future__ import annotations

import dataclasses
import itertools
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
    def of(cls, sentences: Sentences, offsets: np.ndarray, counts: np.ndarray) -> Excerpt:
        """From the offsets of each window's segments and of its end, one window after another.

        Args:
          sentences: the stream.
          offsets: int64 [S + W]: the offsets.
          counts: int64 [W]: how many are of each window, at least 2.
        """
        lasts = np.cumsum(counts) - 1
        firsts = lasts + 1 - counts
        begin, end = offsets[firsts], offsets[lasts]
        sizes = end - begin + 1
        shifts = begin - (np.cumsum(sizes) - sizes)
        begins = _word_starts(sentences, begin, end)
        positions = np.arange(len(begins), dtype=np.int32)
        before = np.where(begins, positions, np.int32(-1))
        after = np.where(begins, positions, np.int32(len(begins)))
        return cls(
            bounds=offsets - np.repeat(shifts, counts),
            firsts=firsts,
            lasts=lasts,
            shifts=shifts,
            word_at_most=np.maximum.accumulate(before),
            word_at_least=np.minimum.accumulate(after[::-1])[::-1],
        )

    def word_before(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The last start of a word above `start` and at most `end`; `end` if there is none."""
        start_of_word = self.word_at_most[end]
        return np.where(start_of_word > start, start_of_word, end)

    def word_after(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The first start of a word from `start` on and below `end`; `start` if there is none."""
        start_of_word = self.word_at_least[start]
        return np.where(start_of_word < end, start_of_word, start)


def _word_starts(sentences: Sentences, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """bool [positions] of windows; a window's end is where the next token of the stream is.

    Windows that lie side by side are read together. At the end of the stream a word starts.
    """
    apart = np.flatnonzero(begin[1:] != end[:-1]) + 1
    parts = []
    for first, last in itertools.pairwise([0, *apart.tolist(), len(begin)]):
        start, stop = int(begin[first]), int(end[last - 1])
        begins = sentences.word_starts(start, min(stop + 1, sentences.total))
        begins = np.append(begins, np.ones(stop + 1 - start - len(begins), bool))
        if last - first > 1:
            # Each window has a position more than tokens.
            between = end[first : last - 1] - start
            begins = np.insert(begins, between, begins[between])
        parts.append(begins)
    return np.concatenate(parts)

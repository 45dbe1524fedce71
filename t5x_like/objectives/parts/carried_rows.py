"""Rows of text that continue from batch to batch, for models that carry memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from t5x_like.objectives.parts.geometry import Sentences

SPECIALS = 3
"""[SEP] after each of the two texts, and [CLS]."""
RANGES = ("inputs", "first", "second")


@dataclasses.dataclass(frozen=True)
class _Row:
    """Consecutive text, [start, end) of the stream; positions count from 0 in reading order."""

    sentences: Sentences
    start: int
    end: int
    backward: bool

    def __len__(self) -> int:
        return self.end - self.start

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The offsets in the stream of positions [start, end)."""
        if self.backward:
            return self.end - end, self.end - start
        return self.start + start, self.start + end

    def limits(self, start: int, end: int) -> list[int]:
        """Limits of sentences, ascending: from the last up to `start` to the first from `end` on.

        The ends of the row are limits too. 0 <= start < end <= len(row).
        """
        first, last = self.span(start, end)
        document = self.sentences.document_at(first)
        offsets: set[int] = set()
        while max(offsets, default=first) < last:
            limits = self.sentences[document]
            low = max(0, int(limits.searchsorted(first, side="right")) - 1)
            high = int(limits.searchsorted(last))
            offsets.update(limits[low : high + 1].tolist())
            document += 1
        inside = {min(max(offset, self.start), self.end) for offset in offsets}
        return sorted(self.end - i if self.backward else i - self.start for i in inside)

    def begins_document(self, position: int) -> bool:
        """Whether the token at `position` is the first of its document in reading order."""
        first, last = self.span(position, position + 1)
        limits = self.sentences[self.sentences.document_at(first)]
        return bool(limits[-1] == last if self.backward else limits[0] == first)


@dataclasses.dataclass(frozen=True)
class CarriedRows:
    """Pieces of text that continue from batch to batch, each followed by two texts A and B.

    The stream is cut in rows of the same length, and all rows of a batch are at the same step. A
    sample has `inputs`, the next `reuse_length` tokens of its row; `first`, A, which begins right
    after them; and `second`, B. A ends at a random limit of sentences among the tokens that A and B
    fill. B follows A half of the time (`is_next` 1). Else, and where there is no such limit, B is
    the sentences around a token drawn from the row. A and B then lose tokens at their ends, the
    longer one first, until they fit (XLNet, section 2.5, and its published code).

    With `bidirectional`, the second half of a batch's rows is the text of the first half, read from
    right to left (section 3.1). "Next" and "end" then follow the reading order. Ranges are offsets
    in the stream, and the objective reverses their tokens.

    `reset_memory` is 1 at the first step, and where `inputs` begin a document in reading order. The
    steps end when the rows, which are equally long, have no text for another. So at most
    `reuse_length` - 1 tokens at the end of a row, besides the last A and B, are not among `inputs`.
    At the end of the stream fewer tokens than there are rows are left out.

    Attributes:
      length: tokens of a sample, including two [SEP] and a [CLS].
      reuse_length: tokens of `inputs`, and the distance from one step to the next.
      bidirectional: whether half of the rows are read from right to left.
    """

    length: int = 512
    reuse_length: int = 256
    bidirectional: bool = True

    columns = (
        *(f"{name}_{edge}" for name in RANGES for edge in ("start", "end")),
        "is_next",
        "reset_memory",
        "backward",
    )
    separators = True
    segments_of = None

    def __post_init__(self) -> None:
        if self.reuse_length < 1 or self._pair < 2:
            raise ValueError(
                f"CarriedRows: a sample has a token to reuse and two texts of a token or more "
                f"beside {SPECIALS} special tokens, got length {self.length} and reuse_length "
                f"{self.reuse_length}"
            )

    @property
    def rows_multiple(self) -> int:
        """2 where half of the rows are read backward, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def _pair(self) -> int:
        """Tokens of A and B together."""
        return self.length - self.reuse_length - SPECIALS

    def steps(self, tokens: int, rows: int) -> int:
        """The number of batches of `rows` rows that a stream of so many tokens makes.

        Raises:
          ValueError: it is too short for `rows` rows, or `rows` is below 1 or odd.
        """
        directions = self.rows_multiple
        if rows < 1 or rows % directions:
            raise ValueError(
                f"{self} needs an even number of rows, as many forward as backward, got {rows}"
                if self.bidirectional
                else f"{self} needs at least one row, got {rows}"
            )
        size = tokens // (rows // directions)
        needed = self.length - SPECIALS
        if size < needed:
            allowed = tokens // needed * directions
            raise ValueError(
                f"a corpus of {tokens} tokens is too short for {rows} rows with {self}, "
                f"which needs {needed} tokens a row of text: it allows {allowed} rows; make the "
                "batch smaller or take more text"
            )
        return (size - needed) // self.reuse_length + 1

    def plan_rows(
        self, sentences: Sentences, rng: np.random.Generator, steps: range, rows: int
    ) -> Iterator[list[tuple[int, ...]]]:
        """Yields the samples of each step, in the order of the rows."""
        directions = (False, True) if self.bidirectional else (False,)
        of_direction = rows // len(directions)
        size = sentences.total // of_direction
        starts = range(0, size * of_direction, size)
        texts = [_Row(sentences, i, i + size, backward) for backward in directions for i in starts]
        for step in steps:
            draws = rng.random((rows, 3)).tolist()
            yield [
                self._sample(text, step * self.reuse_length, *draw)
                for text, draw in zip(texts, draws, strict=True)
            ]

    def _sample(
        self, row: _Row, position: int, coin: float, cut: float, place: float
    ) -> tuple[int, ...]:
        """The columns of a sample, from the uniform numbers `coin`, `cut` and `place`."""
        start = position + self.reuse_length
        limits = row.limits(start, start + self._pair)
        cuts = [i for i in limits if start < i < start + self._pair]
        is_next = bool(cuts) and coin >= 0.5
        middle = cuts[int(cut * len(cuts))] if cuts else limits[-1]
        if is_next:
            second, end = middle, limits[-1]
        else:
            size = max(1, self._pair - (middle - start))
            second = int(place * (len(row) - size + 1))
            second, *_, end = row.limits(second, second + size)
        # The longer text is shortened, B if they are equal. So A keeps at most the larger half, or
        # what B does not fill.
        first_size = min(middle - start, max(self._pair - (end - second), (self._pair + 1) // 2))
        return (
            *row.span(position, start),
            *row.span(start, start + first_size),
            *row.span(second, second + self._pair - first_size),
            int(is_next),
            int(position == 0 or row.begins_document(position)),
            int(row.backward),
        )

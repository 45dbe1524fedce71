"""Rows of text that continue from batch to batch, for models that carry memory along them."""

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
    """Consecutive text, [start, end) of the stream; positions count as it is read, from 0."""

    sentences: Sentences
    start: int
    end: int
    backward: bool

    def __len__(self) -> int:
        return self.end - self.start

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where positions [start, end) lie in the stream; the same for offsets in the row."""
        if self.backward:
            return self.end - end, self.end - start
        return self.start + start, self.start + end

    def limits(self, start: int, end: int) -> list[int]:
        """Limits of sentences: the last up to `start`, those between, the first from `end` on.

        Ascending. The ends of the row are limits. 0 <= start < end <= len(row).
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
        """Whether the token there is the first of its document to be read."""
        first, last = self.span(position, position + 1)
        limits = self.sentences[self.sentences.document_at(first)]
        return bool(limits[-1] == last if self.backward else limits[0] == first)


@dataclasses.dataclass(frozen=True)
class CarriedRows:
    """Pieces of text that continue along a row of batches, each with two texts A and B after it.

    The stream is cut in rows of the same length; those of one batch stand at the same step. A
    sample is `inputs`, the next `reuse_length` tokens of its row; `first`, A, which begins right
    after; and `second`, B. A ends at a random limit of sentences among the tokens that A and B
    fill. Half of the time B follows A (`is_next` 1); else, and where no such limit exists, it is
    the sentences around a token drawn from the row. A and B then lose tokens at their ends, the
    longer one first, until they fit (XLNet, section 2.5, and its published code).

    With `bidirectional`, the second half of the rows of a batch is the text of the first half read
    from right to left (section 3.1), for which "next" and "end" mean what a reader meets: ranges
    are still those of the stream, and the objective turns their tokens round.

    `reset_memory` is 1 at the first step, and where `inputs` begin at the beginning of a document,
    as read. The steps end where no row has the text for another: as all have the same length, at
    most `reuse_length` - 1 tokens at the end of each, besides the last A and B, are not among
    `inputs`, and fewer than there are rows at the end of the stream.

    Attributes:
      length: tokens of a sample and of two [SEP] and a [CLS].
      reuse_length: tokens of `inputs`, and from one step to the next.
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
        """Rows come in pairs where half of them are read backward."""
        return 2 if self.bidirectional else 1

    @property
    def _pair(self) -> int:
        """Tokens of A and B together."""
        return self.length - self.reuse_length - SPECIALS

    def plan_rows(
        self, sentences: Sentences, rng: np.random.Generator, rows: int
    ) -> Iterator[list[tuple[int, ...]]]:
        """The samples of one step after another, in the order of the rows.

        Raises:
          ValueError: the corpus is too short for so many rows, or they are odd in number.
        """
        directions = (False, True) if self.bidirectional else (False,)
        if rows < 1 or rows % len(directions):
            raise ValueError(
                f"{self} needs an even number of rows, as many forward as backward, got {rows}"
                if self.bidirectional
                else f"{self} needs at least one row, got {rows}"
            )
        size = sentences.total // (rows // len(directions))
        needed = self.length - SPECIALS
        if size < needed:
            allowed = sentences.total // needed * len(directions)
            raise ValueError(
                f"a corpus of {sentences.total} tokens is too short for {rows} rows with {self}, "
                f"which needs {needed} tokens a row of text: it allows {allowed} rows; make the "
                "batch smaller or take more text"
            )
        starts = range(0, size * (rows // len(directions)), size)
        return self._steps(
            [_Row(sentences, i, i + size, backward) for backward in directions for i in starts], rng
        )

    def _steps(self, rows: list[_Row], rng: np.random.Generator) -> Iterator[list[tuple[int, ...]]]:
        last = len(rows[0]) - (self.length - SPECIALS)
        for position in range(0, last + 1, self.reuse_length):
            draws = rng.random((len(rows), 3)).tolist()
            yield [
                self._sample(row, position, *draw) for row, draw in zip(rows, draws, strict=True)
            ]

    def _sample(
        self, row: _Row, position: int, coin: float, cut: float, place: float
    ) -> tuple[int, ...]:
        """The columns of a sample, from three uniform numbers."""
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
        # Shortening the longer one, B if they are equal, leaves A at most the larger half, or what
        # B does not fill.
        first_size = min(middle - start, max(self._pair - (end - second), (self._pair + 1) // 2))
        return (
            *row.span(position, start),
            *row.span(start, start + first_size),
            *row.span(second, second + self._pair - first_size),
            int(is_next),
            int(position == 0 or row.begins_document(position)),
            int(row.backward),
        )

"""Rows of text that continue from batch to batch, with two texts after each piece (XLNet)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.parts.continued_rows import Pieces, RowText

if TYPE_CHECKING:
    from t5x_like.objectives.parts.geometry import Sentences

SPECIALS = 3
"""[SEP] after each of the two texts, and [CLS]."""
RANGES = ("inputs", "first", "second")


@dataclasses.dataclass(frozen=True)
class CarriedRows:
    """Pieces of text that continue from batch to batch (`Pieces`), each followed by texts A and B.

    A sample has `inputs`, the next `reuse_length` tokens of its row; `first`, A, which begins right
    after them; and `second`, B. A ends at a random limit of sentences among the tokens that A and B
    fill. B follows A half of the time (`is_next` 1). Else, and where there is no such limit, B is
    the sentences around a token drawn from the row. A and B then lose tokens at their ends, the
    longer one first, until they fit (XLNet, section 2.5, and its published code).

    With `bidirectional`, the second half of a batch's rows is the text of the first half, read from
    right to left (section 3.1). "Next" and "end" then follow the reading order. Ranges are offsets
    in the stream, and the objective reverses their tokens.

    `reset_memory` is 1 at the first step, and where `inputs` begin a document in reading order.

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
        return self._pieces.rows_multiple

    @property
    def _pair(self) -> int:
        """Tokens of A and B together."""
        return self.length - self.reuse_length - SPECIALS

    @property
    def _pieces(self) -> Pieces:
        return Pieces(self.reuse_length, ahead=self._pair, bidirectional=self.bidirectional)

    def steps(self, tokens: int, rows: int) -> int:
        """The number of batches, as `Pieces.steps` has it."""
        return self._pieces.steps(tokens, rows)

    def plan_rows(
        self, sentences: Sentences, rng: np.random.Generator, steps: range, rows: int
    ) -> Iterator[list[tuple[int, ...]]]:
        """Yields the samples of each step, in the order of the rows."""
        texts = self._pieces.texts(sentences, rows)
        for step in steps:
            draws = rng.random((rows, 3)).tolist()
            yield [
                self._sample(text, step * self.reuse_length, *draw)
                for text, draw in zip(texts, draws, strict=True)
            ]

    def _sample(
        self, row: RowText, position: int, coin: float, cut: float, place: float
    ) -> tuple[int, ...]:
        """The columns of a sample, from the uniform numbers `coin`, `cut` and `place`."""
        start = position + self.reuse_length
        limits = _limits(row, start, start + self._pair)
        cuts = [i for i in limits if start < i < start + self._pair]
        is_next = bool(cuts) and coin >= 0.5
        middle = cuts[int(cut * len(cuts))] if cuts else limits[-1]
        if is_next:
            second, end = middle, limits[-1]
        else:
            size = max(1, self._pair - (middle - start))
            second = int(place * (len(row) - size + 1))
            second, *_, end = _limits(row, second, second + size)
        # The longer text is shortened, B if they are equal. So A keeps at most the larger half, or
        # what B does not fill.
        first_size = min(middle - start, max(self._pair - (end - second), (self._pair + 1) // 2))
        return (
            *row.span(position, start),
            *row.span(start, start + first_size),
            *row.span(second, second + self._pair - first_size),
            int(is_next),
            int(row.begins(position)),
            int(row.backward),
        )


def _limits(row: RowText, start: int, end: int) -> list[int]:
    """Limits of sentences, ascending: from the last up to `start` to the first from `end` on.

    The ends of the row are limits too. 0 <= start < end <= len(row).
    """
    first, last = row.span(start, end)
    document = row.sentences.document_at(first)
    offsets: set[int] = set()
    while max(offsets, default=first) < last:
        limits = row.sentences[document]
        low = max(0, int(limits.searchsorted(first, side="right")) - 1)
        high = int(limits.searchsorted(last))
        offsets.update(limits[low : high + 1].tolist())
        document += 1
    inside = {min(max(offset, row.start), row.end) for offset in offsets}
    return sorted(row.end - i if row.backward else i - row.start for i in inside)

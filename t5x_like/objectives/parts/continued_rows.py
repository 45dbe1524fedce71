"""Rows of text that continue from batch to batch, for models that carry memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from t5x_like.objectives.parts.geometry import Sentences


@dataclasses.dataclass(frozen=True)
class RowText:
    """The text of one row of all batches: [start, end) of the stream.

    Positions count its tokens from 0 in reading order.
    """

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

    def begins(self, position: int) -> bool:
        """Whether the token at `position` continues nothing in reading order.

        It is then the first of the row or of its document.
        """
        if position == 0:
            return True
        first, last = self.span(position, position + 1)
        document = self.sentences.document_at(first)
        head, end = self.sentences.heads(range(document, document + 1)).tolist()
        return bool(end == last if self.backward else head == first)


@dataclasses.dataclass(frozen=True)
class Pieces:
    """How a stream is cut so that row b of a batch continues row b of the batch before.

    The stream is cut into rows of the same length, and each row into pieces: batch n has the n-th
    piece of every row. The batches end when the rows have no text for another. So at most
    `length` - 1 tokens at the end of a row, besides those `ahead`, are in no piece. At the end of
    the stream fewer tokens than there are rows are left out.

    Attributes:
      length: tokens of a piece.
      ahead: tokens after a piece that its sample reads too.
      bidirectional: whether the second half of a batch's rows is the text of the first half, read
        from right to left.
    """

    length: int
    ahead: int = 0
    bidirectional: bool = False

    @property
    def rows_multiple(self) -> int:
        """2 where half of the rows are read backward, else 1."""
        return 2 if self.bidirectional else 1

    def steps(self, tokens: int, rows: int) -> int:
        """The number of batches of `rows` rows that a stream of so many tokens makes.

        Raises:
          ValueError: it is too short for `rows` rows, or `rows` is below 1 or odd.
        """
        needed = self.length + self.ahead
        return (self.texts_size(tokens, rows) - needed) // self.length + 1

    def texts_size(self, tokens: int, rows: int) -> int:
        """The tokens of the text of each of `rows` rows; raises as `steps`."""
        directions = self.rows_multiple
        if rows < 1 or rows % directions:
            raise ValueError(
                f"{self} needs an even number of rows, as many forward as backward, got {rows}"
                if self.bidirectional
                else f"{self} needs at least one row, got {rows}"
            )
        size = tokens // (rows // directions)
        needed = self.length + self.ahead
        if size < needed:
            allowed = tokens // needed * directions
            raise ValueError(
                f"a corpus of {tokens} tokens is too short for {rows} rows with {self}, "
                f"which needs {needed} tokens a row of text: it allows {allowed} rows; make the "
                "batch smaller or take more text"
            )
        return size

    def texts(self, sentences: Sentences, rows: int) -> list[RowText]:
        """The text of each row of a batch."""
        directions = (False, True) if self.bidirectional else (False,)
        of_direction = rows // len(directions)
        size = sentences.total // of_direction
        starts = range(0, size * of_direction, size)
        return [RowText(sentences, i, i + size, way) for way in directions for i in starts]


@dataclasses.dataclass(frozen=True)
class Continued:
    """Pieces of text that continue from batch to batch (`Pieces`), with all of their tokens.

    A sample has `targets`, int32 [length]; `preceding`, the token before them, int32 [1], or [0]
    at the first step; and `reset_memory`, 1 where the targets continue nothing: at the first step,
    and where they begin a document. "documents" are the positions above 0 at which others begin.
    """

    length: int

    columns = (
        "preceding_start",
        "preceding_end",
        "targets_start",
        "targets_end",
        "reset_memory",
    )
    separators = True
    segments_of = "targets"
    rows_multiple = 1

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"a sample needs at least one token, got length {self.length}")

    def steps(self, tokens: int, rows: int) -> int:
        """The number of batches, as `Pieces.steps` has it."""
        return Pieces(self.length).steps(tokens, rows)

    def plan_rows(
        self, sentences: Sentences, rng: np.random.Generator, steps: range, rows: int
    ) -> Iterator[list[tuple[int, ...]]]:
        """Yields the samples of each step, in the order of the rows; nothing is drawn."""
        texts = Pieces(self.length).texts(sentences, rows)
        for step in steps:
            yield _samples(texts, step * self.length, self.length)


_SEED = 0x62707474
"""Of the lengths of `RandomlyContinued`, which are the same in every epoch and every run."""


@dataclasses.dataclass(frozen=True)
class RandomlyContinued(Continued):
    """`Continued` whose samples have another number of tokens in each step, the same in all rows.

    No gradient passes from a step to the one before: so that this is not always at the same tokens,
    a step reads about `mean` of them, or half as many (Merity et al., 2018, section 5). `length` is
    the most.

    Attributes:
      mean: how many tokens most steps read.
      deviation: the standard deviation of their number.
      halved: the share of the steps that read half as many.
    """

    mean: int = 70
    deviation: float = 5.0
    halved: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.mean <= self.length:
            raise ValueError(
                f"a mean of {self.mean} tokens a step does not fit rows of {self.length}"
            )
        if self.deviation < 0 or not 0 <= self.halved <= 1:
            raise ValueError(f"{self}: a deviation is at least 0, and a share from 0 to 1")

    def steps(self, tokens: int, rows: int) -> int:
        """The number of batches, as `Pieces.steps` has it."""
        size = Pieces(self.length).texts_size(tokens, rows)
        ends = np.cumsum(self.lengths(size))  # no step has less than a token
        return int(np.searchsorted(ends, size, side="right"))

    def lengths(self, count: int) -> np.ndarray:
        """The tokens of the first steps, int64 [count]."""
        halved, drawn = (np.random.default_rng((_SEED, n)) for n in range(2))
        mean = np.where(halved.random(count) < self.halved, self.mean / 2, self.mean)
        lengths = np.rint(mean + self.deviation * drawn.normal(size=count)).astype(np.int64)
        return np.clip(lengths, 1, self.length)

    def plan_rows(
        self, sentences: Sentences, rng: np.random.Generator, steps: range, rows: int
    ) -> Iterator[list[tuple[int, ...]]]:
        """Yields the samples of each step, in the order of the rows; nothing is drawn."""
        texts = Pieces(self.length).texts(sentences, rows)
        lengths = self.lengths(steps.stop)
        starts = np.cumsum(lengths) - lengths
        for step in steps:
            yield _samples(texts, int(starts[step]), int(lengths[step]))


def _samples(texts: list[RowText], position: int, length: int) -> list[tuple[int, ...]]:
    """The samples of `length` tokens from `position` on of all rows."""
    return [
        (
            *text.span(max(position - 1, 0), position),
            *text.span(position, position + length),
            int(text.begins(position)),
        )
        for text in texts
    ]

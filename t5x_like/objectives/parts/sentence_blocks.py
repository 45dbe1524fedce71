"""Samples of as many whole sentences as fit, from one document or across documents.

Nothing is dropped. A segment that is too long for a sample is cut in pieces, where the published
codes drop it or let it overflow. It is cut before a word, unless the word is longer than a piece. A
block of a single token is a sample too.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.parts.drawing import uniforms
from t5x_like.objectives.parts.planning import NUMBERS, in_lists, in_pieces, random_integer

if TYPE_CHECKING:
    from t5x_like.objectives.parts.geometry import Sentences

Row = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class SentenceBlocks:
    """Consecutive segments that fill `length` tokens: samples {"targets": int32 [n]}.

    A block ends where the next segment does not fit. Blocks across documents are FULL-SENTENCES,
    blocks within a document DOC-SENTENCES (RoBERTa, section 4.2); SpanBERT and BART have the
    latter. A segment of more than `length - per_segment` tokens is cut in pieces of at most that
    length.

    Attributes:
      length: the most tokens of a block, including those that the objective adds.
      cross_documents: whether a block continues with the next document.
      per_segment: tokens that the objective adds to each segment.
      per_document: tokens that the objective adds to each document after the first of a block.
      segments_of: as in `geometry.Planned`. It does not change the plan, so the repr lacks it.
      constants: names and values of numbers that every sample also holds; the repr lacks them, too.
    """

    length: int
    cross_documents: bool
    per_segment: int = 0
    per_document: int = 0
    segments_of: str | None = dataclasses.field(default="targets", repr=False)
    constants: tuple[tuple[str, int], ...] = dataclasses.field(default=(), repr=False)

    columns = ("targets_start", "targets_end")
    separators = False

    def __post_init__(self) -> None:
        if self.per_segment < 0 or self.per_document < 0 or self.length <= self.per_segment:
            raise ValueError(
                f"SentenceBlocks: length has to leave room for a token beside those added to a "
                f"segment, none of them negative, got {self}"
            )

    def plan(
        self, sentences: Sentences, rng: np.random.Generator, documents: range
    ) -> Iterable[list[Row]]:
        """Yields the blocks in order; they have no gaps, and nothing is drawn."""
        return in_lists(self._blocks(sentences, documents))

    def _blocks(self, sentences: Sentences, documents: range) -> Iterator[Row]:
        longest = self.length - self.per_segment
        start = used = 0
        for document in documents:
            segments = in_pieces(sentences, sentences[document], longest=longest, piece=longest)
            # A block of segments i to j has costs[j] - costs[i] tokens, added ones included.
            costs = (segments + self.per_segment * np.arange(len(segments))).tolist()
            bounds = segments.tolist()
            if not used:
                start = bounds[0]
            limit = costs[0] + self.length - (used + self.per_document if used else 0)
            while limit < costs[-1]:
                # 0 where the first segment does not fit into a block begun by another document.
                end = bisect.bisect_right(costs, limit, 1) - 1
                yield start, bounds[end]
                start, limit = bounds[end], costs[end] + self.length
            used = self.length - (limit - costs[-1])
            if not self.cross_documents:
                yield start, bounds[-1]
                used = 0
        if used:
            yield start, bounds[-1]


@dataclasses.dataclass(frozen=True)
class LineBlocks:
    """Consecutive lines of a document that together reach a length, which is sometimes short.

    Samples are {"targets": int32 [n], "max_tokens": int32, "length": int32}. `max_tokens` is the
    length to reach, and `length` is the field. The last line of a block may go beyond
    `max_tokens`; the last block of a document may stay below. The first block has `length` to
    reach. A new length is drawn after every block (ELECTRA's published code).

    The objective divides a block's lines among its segments and cuts off what does not fit: a block
    has up to `2 * length - 1` tokens. A line longer than `length` is cut in halves of `length`, or
    the words that fit into a half; the published code lost what was beyond `length`. Such cuts are
    not among a sample's "segments".

    Attributes:
      length: tokens that the model reads, special ones included.
      short_probability: how likely a block has 5 to `length` tokens to reach, and not `length`.
    """

    length: int
    short_probability: float = 0.05

    columns = ("targets_start", "targets_end", "max_tokens")
    separators = False
    segments_of = "targets"

    def __post_init__(self) -> None:
        object.__setattr__(self, "short_probability", float(self.short_probability))
        if self.length < 5:
            raise ValueError(f"LineBlocks: length is at least 5 tokens, got {self.length}")
        if not 0 <= self.short_probability <= 1:
            raise ValueError(
                f"LineBlocks: short_probability lies between 0 and 1, got {self.short_probability}"
            )

    @property
    def constants(self) -> tuple[tuple[str, int], ...]:
        """The numbers that every sample holds."""
        return (("length", self.length),)

    def plan(
        self, sentences: Sentences, rng: np.random.Generator, documents: range
    ) -> Iterable[list[Row]]:
        """Yields the blocks in order, without gaps."""
        return in_lists(self._blocks(sentences, documents, uniforms(rng, NUMBERS)))

    def _blocks(
        self, sentences: Sentences, documents: range, draws: Iterator[float]
    ) -> Iterator[Row]:
        target = self.length
        for document in documents:
            lines = in_pieces(
                sentences, sentences[document], longest=self.length, piece=(self.length + 1) // 2
            )
            bounds = lines.tolist()
            last = len(bounds) - 1
            at = 0
            while at < last:
                end = min(bisect.bisect_left(bounds, bounds[at] + target, at + 1), last)
                yield bounds[at], bounds[end], target
                at = end
                short = next(draws) < self.short_probability
                target = random_integer(5, self.length, draws) if short else self.length

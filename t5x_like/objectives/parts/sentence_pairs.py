"""Two texts a sample, the second what follows the first or text of elsewhere (BERT, A.2).

Offsets only: an objective puts [CLS] and [SEP] around the texts and may swap them. As in the
published code, a pair that is too long loses tokens at its four ends, and these are in no other
sample of that pass. Two deviations: what is lost are whole words, so that a pair may be some tokens
short; and a segment longer than a sample is cut in halves of a sample first, before a word. Uncut,
it would be a first text by itself, its second always random, and lose all beyond a sample: text
without line breaks would have no pairs in order.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.parts.drawing import uniforms
from t5x_like.objectives.parts.planning import (
    NUMBERS,
    between,
    in_lists,
    in_pieces,
    word_after,
    word_before,
)

if TYPE_CHECKING:
    from t5x_like.objectives.parts.geometry import Sentences

COLUMNS = ("first_start", "first_end", "second_start", "second_end", "is_random")
ATTEMPTS = 10

Row = tuple[int, ...]


def _segments(sentences: Sentences, document: int, length: int) -> np.ndarray:
    """Offsets of a document's segments, none longer than a sample."""
    return in_pieces(sentences, document, longest=length, piece=(length + 1) // 2)


def _elsewhere(
    sentences: Sentences, document: int, *, length: int, tokens: int, draws: Iterator[float]
) -> tuple[int, int]:
    """Segments of another document from a random one on: `tokens` tokens or a little more.

    Fewer at the document's end, one segment at least. Of the same document where others are hard
    to find, as published.
    """
    for _ in range(ATTEMPTS):
        other = between(0, len(sentences) - 1, draws)
        if other != document:
            break
    bounds = _segments(sentences, other, length)
    first = between(0, len(bounds) - 2, draws)
    end = min(int(bounds.searchsorted(bounds[first] + max(1, tokens))), len(bounds) - 1)
    return int(bounds[first]), int(bounds[end])


def _document_pairs(
    sentences: Sentences,
    document: int,
    *,
    length: int,
    target: int | None,
    random_probability: float,
    draws: Iterator[float],
) -> Iterator[Row]:
    """The pairs of a document, not yet truncated.

    Each comes of a chunk, the next segments that hold `target` tokens; None for the next two. The
    first text is some of them, at least one; the second the others. Where it is random instead,
    those others begin the next chunk.
    """
    bounds = _segments(sentences, document, length).tolist()
    last = len(bounds) - 1
    at = 0
    while at < last:
        start = bounds[at]
        end = at + 2 if target is None else bisect.bisect_left(bounds, start + target, at + 1)
        end = min(end, last)
        alone = end == at + 1
        middle = end if alone else between(at + 1, end - 1, draws)
        split = bounds[middle]
        if alone or next(draws) < random_probability:
            tokens = 1 if target is None else target - (split - start)
            second = _elsewhere(sentences, document, length=length, tokens=tokens, draws=draws)
            yield (start, split, *second, 1)
            at = middle
        else:
            yield (start, split, split, bounds[end], 0)
            at = end


def _truncated(
    rows: list[Row],
    length: int,
    rng: np.random.Generator,
    *,
    sentences: Sentences,
    in_order: bool = False,
) -> list[Row]:
    """Rows whose two texts have at most `length` tokens together.

    What one token at a time gives, off the longer text (off the second if equal) and off its front
    or its back with probability 1/2 each: the lengths are arithmetic, the cuts at the front
    binomial. Texts that are `in_order` will be swapped, or not: there it is either of them if
    equal. Were it always the second, an odd `length` would tell which were swapped; the published
    code swaps first, which a plan cannot, as every epoch swaps again.

    Then what is left of a word that was cut goes too, unless no whole word is left.
    """
    first_start, first_end, second_start, second_end, is_random = np.array(rows).T
    first, second = first_end - first_start, second_end - second_start
    half = np.full(len(rows), length - length // 2)
    if in_order:
        half = (length + rng.integers(2, size=len(rows))) // 2
    kept_first = np.minimum(first, np.maximum(half, length - second))
    kept_second = np.minimum(second, length - kept_first)
    first_kept = first_start + rng.binomial(first - kept_first, 0.5)
    second_kept = second_start + rng.binomial(second - kept_second, 0.5)
    texts = (
        _whole_words(sentences, np.stack(columns, axis=1).tolist())
        for columns in (
            (first_start, first_kept, first_kept + kept_first, first_end),
            (second_start, second_kept, second_kept + kept_second, second_end),
        )
    )
    labels = is_random.tolist()
    return [(*a, *b, label) for a, b, label in zip(*texts, labels, strict=True)]


def _whole_words(sentences: Sentences, texts: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Texts (start, start of what is kept, its end, end) without the parts of words at cuts."""
    for start, kept, end, last in texts:
        first = word_after(sentences, kept, end) if kept > start else kept
        final = word_before(sentences, kept, end) if end < last else end
        if first < final:
            yield first, final
        else:
            # One word ends there and another begins, neither of them whole: the longer part.
            yield (kept, first) if first - kept > end - first else (first, end)


def _check_length(name: str, length: int) -> None:
    if length < 2:
        raise ValueError(f"{name}: length is the tokens of two texts, at least 2, got {length}")


@dataclasses.dataclass(frozen=True)
class SentencePairs:
    """Pairs of runs of sentences: samples {"first", "second": int32 [n], "is_random": int32}.

    Every text has a token at least. A random second text may lie anywhere; another one follows the
    first, with nothing but truncated tokens between them. More than `random_probability` of the
    second texts are random: all those of chunks of one segment are.

    Attributes:
      length: tokens of both texts together, at most: those of the model, less [CLS] and two [SEP].
      passes: times that the corpus is gone through, with new draws (BERT's dupe_factor).
      short_probability: how likely a document has chunks of 2 to `length` tokens, not of `length`.
      random_probability: of a random second text where the chunk has two segments or more; 0 for
        the order of sentences (ALBERT): which of two equal texts keeps the odd token is then drawn.
    """

    length: int
    passes: int = 1
    short_probability: float = 0.1
    random_probability: float = 0.5

    columns = COLUMNS
    separators = False
    segments_of = None

    def __post_init__(self) -> None:
        _check_length("SentencePairs", self.length)
        if self.passes < 1:
            raise ValueError(f"SentencePairs: passes is at least 1, got {self.passes}")
        for name in ("short_probability", "random_probability"):
            value = float(getattr(self, name))
            object.__setattr__(self, name, value)
            if not 0 <= value <= 1:
                raise ValueError(f"SentencePairs: {name} lies between 0 and 1, got {value}")

    def plan(self, sentences: Sentences, rng: np.random.Generator) -> Iterable[list[Row]]:
        """The pairs of each document in order, once a pass; as `geometry.Planned.plan`."""
        for rows in in_lists(self._pairs(sentences, uniforms(rng, NUMBERS))):
            in_order = self.random_probability == 0
            yield _truncated(rows, self.length, rng, sentences=sentences, in_order=in_order)

    def _pairs(self, sentences: Sentences, draws: Iterator[float]) -> Iterator[Row]:
        for _ in range(self.passes):
            for document in range(len(sentences)):
                short = next(draws) < self.short_probability
                yield from _document_pairs(
                    sentences,
                    document,
                    length=self.length,
                    target=between(2, self.length, draws) if short else self.length,
                    random_probability=self.random_probability,
                    draws=draws,
                )


@dataclasses.dataclass(frozen=True)
class SingleSentencePairs:
    """Pairs of single sentences: the second is the next one or, as often, a random one.

    Samples and truncation as of `SentencePairs`. A sentence whose second is random leaves the next
    one to begin a pair; one that ends its document has a random second. RoBERTa's SENTENCE-PAIR
    (section 4.2), whose code is not public.

    Attributes:
      length: tokens of both sentences together, at most.
    """

    length: int

    columns = COLUMNS
    separators = False
    segments_of = None

    def __post_init__(self) -> None:
        _check_length("SingleSentencePairs", self.length)

    def plan(self, sentences: Sentences, rng: np.random.Generator) -> Iterable[list[Row]]:
        """The pairs of each document in order; as `geometry.Planned.plan`."""
        draws = uniforms(rng, NUMBERS)
        pairs = (
            pair
            for document in range(len(sentences))
            for pair in _document_pairs(
                sentences,
                document,
                length=self.length,
                target=None,
                random_probability=0.5,
                draws=draws,
            )
        )
        for rows in in_lists(pairs):
            yield _truncated(rows, self.length, rng, sentences=sentences)

"""Pairs of texts, where the second follows the first or is random text (BERT, appendix A.2).

The objective puts [CLS] and [SEP] around the texts and may swap them. As in the published code, a
pair that is too long loses tokens at its four ends, and no other sample of that pass has them. Two
things differ. A pair loses whole words, so it may be some tokens short. And a segment longer than a
sample is first cut before words, in pieces of at most half a sample. Otherwise it would be a first
text alone, with a random second, and would lose all that is beyond a sample: text without line
breaks would have no pairs in order.
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
    in_lists,
    in_pieces,
    random_integer,
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
    """The range of random segments of another document: `tokens` tokens or a little more.

    There are fewer tokens at the end of a document, but at least one segment. If `ATTEMPTS` draws
    find no other document, it is the same one, as in the published code.
    """
    for _ in range(ATTEMPTS):
        other = random_integer(0, len(sentences) - 1, draws)
        if other != document:
            break
    bounds = _segments(sentences, other, length)
    first = random_integer(0, len(bounds) - 2, draws)
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
    """The pairs of a document before truncation.

    Each pair is made of a chunk: the next segments that hold `target` tokens, or the next two where
    that is None. The first text is one or more of these segments, the second the others. If the
    second is random instead, the others begin the next chunk.
    """
    bounds = _segments(sentences, document, length).tolist()
    last = len(bounds) - 1
    at = 0
    while at < last:
        start = bounds[at]
        end = at + 2 if target is None else bisect.bisect_left(bounds, start + target, at + 1)
        end = min(end, last)
        alone = end == at + 1
        middle = end if alone else random_integer(at + 1, end - 1, draws)
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
    """The rows with their two texts cut to at most `length` tokens together.

    The published code removes one token at a time, from the longer text (the second if equal), from
    its front or its back with probability 1/2. Here the lengths are computed and the cuts at the
    front are binomial draws, with the same result. Texts that are `in_order` may be swapped later,
    so if they are equal either may lose the token: were it always the second, an odd `length` would
    tell which pairs are swapped. The published code swaps first, but a plan serves all epochs.

    Parts of words at the cuts are removed too, unless no whole word would be left.
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
    """The kept ranges without parts of words; `texts` are (start, kept start, kept end, end)."""
    for start, kept, end, last in texts:
        first = word_after(sentences, kept, end) if kept > start else kept
        final = word_before(sentences, kept, end) if end < last else end
        if first < final:
            yield first, final
        else:
            # The end of one word and the beginning of another are left: the longer part stays.
            yield (kept, first) if first - kept > end - first else (first, end)


def _check_length(name: str, length: int) -> None:
    if length < 2:
        raise ValueError(f"{name}: length is the tokens of two texts, at least 2, got {length}")


@dataclasses.dataclass(frozen=True)
class SentencePairs:
    """Pairs of runs of sentences: samples {"first", "second": int32 [n], "is_random": int32}.

    Every text has at least one token. A random second text may be anywhere. Any other follows the
    first, with only truncated tokens between them. More than `random_probability` of the second
    texts are random, because a chunk of one segment always has a random second text.

    Attributes:
      length: the most tokens of both texts together: the model's, less [CLS] and two [SEP].
      passes: how often the corpus is read, each time with new draws (BERT's dupe_factor).
      short_probability: how likely a document has chunks of 2 to `length` tokens, not of `length`.
      random_probability: how likely the second text of a chunk with several segments is random. 0
        is for sentence order (ALBERT); then it is drawn which of two equal texts loses a token.
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
        """Yields the pairs of each document in order, in each pass; see `geometry.Planned.plan`."""
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
                    target=random_integer(2, self.length, draws) if short else self.length,
                    random_probability=self.random_probability,
                    draws=draws,
                )


@dataclasses.dataclass(frozen=True)
class SingleSentencePairs:
    """Pairs of single sentences: the second is the next one or, equally often, a random one.

    Samples and truncation are those of `SentencePairs`. If the second sentence is random, the next
    sentence begins a pair. The last sentence of a document has a random second. This is RoBERTa's
    SENTENCE-PAIR (section 4.2), whose code is not public.

    Attributes:
      length: the most tokens of both sentences together.
    """

    length: int

    columns = COLUMNS
    separators = False
    segments_of = None

    def __post_init__(self) -> None:
        _check_length("SingleSentencePairs", self.length)

    def plan(self, sentences: Sentences, rng: np.random.Generator) -> Iterable[list[Row]]:
        """Yields the pairs of each document in order; see `geometry.Planned.plan`."""
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

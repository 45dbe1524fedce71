"""Pairs of texts, where the second follows the first or is random text (BERT, appendix A.2).

The objective puts [CLS] and [SEP] around the texts and may swap them. As in the published code, a
pair that is too long loses tokens at its four ends, and no other sample of that pass has them. Two
things differ. A pair loses whole words, so it may be some tokens short. And a segment longer than a
sample is first cut before words, in pieces of at most half a sample. Otherwise it would be a first
text alone, with a random second, and would lose all that is beyond a sample: text without line
breaks would have no pairs in order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t5x_like.objectives.parts.excerpts import Excerpt
from t5x_like.objectives.parts.planning import in_pieces
from t5x_like.objectives.parts.random_texts import Elsewhere, random_integers

if TYPE_CHECKING:
    from t5x_like.objectives.parts.geometry import Sentences

_TOKENS = 1 << 24
"""Tokens that are planned together, at most: what bounds the memory. A longer document is cut."""
COLUMNS = ("first_start", "first_end", "second_start", "second_end", "is_random")


@dataclasses.dataclass(frozen=True)
class _Chunks:
    """The chunks of some documents, each divided in two; int64 [n] each, positions in a text.

    A chunk is the next segments that hold as many tokens as is the target, or the next two without
    a target. The first text, up to `split`, is one or more of its segments, the second the others.
    If the second `is_random` instead, the others begin the next chunk.
    """

    window: np.ndarray
    start: np.ndarray
    split: np.ndarray
    end: np.ndarray
    is_random: np.ndarray
    target: np.ndarray | None

    @classmethod
    def of(
        cls,
        text: Excerpt,
        targets: np.ndarray | None,
        *,
        random_probability: float,
        rng: np.random.Generator,
    ) -> _Chunks:
        """Those of all windows at once, one chunk of each after another."""
        at, last = text.firsts.copy(), text.lasts
        left = np.arange(len(at))
        chunks = []
        while len(left):
            now = at[left]
            start = text.bounds[now]
            end = now + 2 if targets is None else text.bounds.searchsorted(start + targets[left])
            end = np.minimum(end, last[left])
            alone = end == now + 1
            middle = np.where(alone, end, random_integers(now + 1, end - 1, rng))
            is_random = alone | (rng.random(len(left)) < random_probability)
            chunks.append((left, start, text.bounds[middle], text.bounds[end], is_random))
            at[left] = np.where(is_random, middle, end)
            left = left[at[left] < last[left]]
        window, start, split, end, is_random = (
            np.concatenate(column) for column in zip(*chunks, strict=True)
        )
        order = np.argsort(window, kind="stable")
        window = window[order]
        return cls(
            window,
            start[order],
            split[order],
            end[order],
            is_random[order],
            None if targets is None else targets[window],
        )


def _planned(
    sentences: Sentences,
    rng: np.random.Generator,
    documents: range,
    *,
    length: int,
    short_probability: float | None,
    random_probability: float,
) -> Iterator[np.ndarray]:
    """The pairs of some documents, in order: blocks, int64 [n, 5].

    Without `short_probability` a chunk is two segments.
    """
    for windows in _Windows.of(sentences, documents, length).groups():
        targets = None
        if short_probability is not None:
            short = rng.random(len(windows.counts)) < short_probability
            drawn = random_integers(2, np.full(len(short), length), rng)
            targets = np.where(short, drawn, length)
        text = Excerpt.of(sentences, windows.offsets, windows.counts)
        chunks = _Chunks.of(text, targets, random_probability=random_probability, rng=rng)
        yield _pairs(
            sentences,
            chunks,
            rng,
            text=text,
            documents=windows.documents,
            length=length,
            in_order=random_probability == 0,
        )


class _Windows(NamedTuple):
    """Consecutive segments of documents: a document, or some of a very long one.

    Attributes:
      offsets: int64 [S + W]: where each window's segments start and, after them, its end.
      counts: int64 [W]: how many of these each window has.
      documents: int64 [W]: its document.
    """

    offsets: np.ndarray
    counts: np.ndarray
    documents: np.ndarray

    @classmethod
    def of(cls, sentences: Sentences, documents: range, length: int) -> _Windows:
        """Those of some documents, whose segments are cut where they are longer than a sample."""
        whole = sentences.bounds(documents)
        heads = sentences.heads(documents)
        bounds = in_pieces(sentences, whole, longest=length, piece=(length + 1) // 2)
        edges = bounds.searchsorted(np.union1d(heads, _cuts_of_long(bounds, heads)))
        window = np.repeat(np.arange(len(edges) - 1), np.diff(edges) + 1)
        return cls(
            bounds[np.arange(len(window)) - window],
            np.diff(edges) + 1,
            documents.start + heads.searchsorted(bounds[edges[:-1]], "right") - 1,
        )

    def groups(self) -> Iterator[_Windows]:
        """Those that are planned together."""
        lasts = np.cumsum(self.counts)
        ends = self.offsets[lasts - 1]
        begin, done = 0, self.offsets[0] if len(self.offsets) else 0
        while begin < len(self.counts):
            end = min(int(ends.searchsorted(done + _TOKENS)) + 1, len(self.counts))
            first = lasts[begin - 1] if begin else 0
            yield _Windows(
                self.offsets[first : lasts[end - 1]],
                self.counts[begin:end],
                self.documents[begin:end],
            )
            begin, done = end, ends[end - 1]


def _cuts_of_long(bounds: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """Where documents of more than `_TOKENS` are cut: some of the bounds."""
    cuts = []
    for i in np.flatnonzero(np.diff(heads) > _TOKENS).tolist():
        at, end = heads[i], heads[i + 1]
        while end - at > _TOKENS:
            next_one = bounds[bounds.searchsorted(at, "right")]
            at = max(next_one, bounds[bounds.searchsorted(at + _TOKENS, "right") - 1])
            cuts.append(at)
    return np.array(cuts, np.int64)


def _pairs(
    sentences: Sentences,
    chunks: _Chunks,
    rng: np.random.Generator,
    *,
    text: Excerpt,
    documents: np.ndarray,
    length: int,
    in_order: bool,
) -> np.ndarray:
    """The pairs of chunks of a text whose windows are of these documents: int64 [n, 5]."""
    edges = np.stack([chunks.split, chunks.end])
    shifts = text.shifts[chunks.window]
    sources = [(text, np.flatnonzero(~chunks.is_random))]
    second_shifts = shifts.copy()
    if chunks.is_random.any():
        random = np.flatnonzero(chunks.is_random)
        tokens = len(text.word_at_most)
        elsewhere = Elsewhere.drawn(sentences, rng, length=length, tokens=tokens)
        missing = np.ones(len(random), np.int64)
        if chunks.target is not None:
            missing = (chunks.target - chunks.split + chunks.start)[random]
        own_documents = documents[chunks.window[random]]
        window, edges[:, random] = elsewhere.texts(own_documents, missing, rng)
        second_shifts[random] = elsewhere.text.shifts[window]
        sources.append((elsewhere.text, random))
    sizes = chunks.split - chunks.start, edges[1] - edges[0]
    first_cut, second_cut = _cuts(*sizes, length, rng, in_order=in_order)
    first = _whole_words(text, np.stack([chunks.start, chunks.split]), first_cut)
    second = np.empty_like(edges)
    for source, some in sources:
        second[:, some] = _whole_words(source, edges[:, some], second_cut[:, some])
    return np.stack([*(first + shifts), *(second + second_shifts), chunks.is_random], axis=1)


def _cuts(
    first: np.ndarray,
    second: np.ndarray,
    length: int,
    rng: np.random.Generator,
    *,
    in_order: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Of two texts of these sizes, tokens lost at the front and tokens kept: int64 [2, n] each.

    Together the texts keep at most `length` tokens.

    The published code removes one token at a time, from the longer text (the second if equal), from
    its front or its back with probability 1/2. Here the lengths are computed and the cuts at the
    front are binomial draws, with the same result. Texts that are `in_order` may be swapped later,
    so if they are equal either may lose the token: were it always the second, an odd `length` would
    tell which pairs are swapped. The published code swaps first, but a plan serves all epochs.
    """
    half = np.full(len(first), length - length // 2)
    if in_order:
        half = (length + rng.integers(2, size=len(first))) // 2
    kept_first = np.minimum(first, np.maximum(half, length - second))
    kept_second = np.minimum(second, length - kept_first)
    return (
        np.stack([rng.binomial(first - kept_first, 0.5), kept_first]),
        np.stack([rng.binomial(second - kept_second, 0.5), kept_second]),
    )


def _whole_words(text: Excerpt, edges: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """Starts and ends of what is left of texts, without parts of words at cuts: int64 [2, n].

    Unless no whole word would be left. `cut` is a result of `_cuts`.
    """
    (start, end), (lost, left) = edges, cut
    low, high = start + lost, start + lost + left
    first = np.where(low > start, text.word_after(low, high), low)
    last = np.where(high < end, text.word_before(low, high), high)
    # The end of one word and the beginning of another are left: the longer part stays.
    ending = first - low > high - first
    return np.stack(
        [
            np.where(first < last, first, np.where(ending, low, first)),
            np.where(first < last, last, np.where(ending, first, high)),
        ]
    )


class _Pairs:
    """Pairs of at most `length` tokens; without `short_probability` a chunk is two segments."""

    length: int
    short_probability: float | None
    random_probability: float

    columns = COLUMNS
    separators = False
    segments_of = None

    def __post_init__(self) -> None:
        if self.length < 2:
            raise ValueError(
                f"{type(self).__name__}: length is the tokens of two texts, at least 2, got "
                f"{self.length}"
            )

    def plan(
        self, sentences: Sentences, rng: np.random.Generator, documents: range
    ) -> Iterator[np.ndarray]:
        """Yields the pairs of each document in order; see `geometry.Planned.plan`."""
        return _planned(
            sentences,
            rng,
            documents,
            length=self.length,
            short_probability=self.short_probability,
            random_probability=self.random_probability,
        )


@dataclasses.dataclass(frozen=True)
class SentencePairs(_Pairs):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passes < 1:
            raise ValueError(f"SentencePairs: passes is at least 1, got {self.passes}")
        for name in ("short_probability", "random_probability"):
            value = float(getattr(self, name))
            object.__setattr__(self, name, value)
            if not 0 <= value <= 1:
                raise ValueError(f"SentencePairs: {name} lies between 0 and 1, got {value}")


@dataclasses.dataclass(frozen=True)
class SingleSentencePairs(_Pairs):
    """Pairs of single sentences: the second is the next one or, equally often, a random one.

    Samples and truncation are those of `SentencePairs`. If the second sentence is random, the next
    sentence begins a pair. The last sentence of a document has a random second. This is RoBERTa's
    SENTENCE-PAIR (section 4.2), whose code is not public.

    Attributes:
      length: the most tokens of both sentences together.
    """

    length: int

    short_probability = None
    random_probability = 0.5

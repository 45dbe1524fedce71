"""SpanBERT: masked spans of whole words, which their boundaries predict too."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.drawing import corpus_tokens, thresholds
from t5x_like.objectives.parts.formats import MaskedTokens, masked_features
from t5x_like.objectives.parts.probabilities import check_count, check_share
from t5x_like.objectives.parts.sentence_blocks import SentenceBlocks
from t5x_like.objectives.parts.words import word_bounds, word_starts

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


AT_ONCE = 24
"""Spans drawn together, for speed: enough for most texts of 510 tokens."""


@functools.lru_cache
def span_lengths(p: float, longest: int) -> tuple[float, ...]:
    """`drawing.thresholds` of the words of a span, less 1: geometric, cut at `longest`."""
    return thresholds([(1 - p) ** words for words in range(longest)])


def random_spans(
    tokens: int, lengths: tuple[float, ...], rng: np.random.Generator
) -> Iterator[tuple[int, int]]:
    """Draws spans without end: a number of words by `span_lengths`, and a position."""
    while True:
        numbers = iter(rng.random(2 * AT_ONCE).tolist())
        for u, v in zip(numbers, numbers, strict=True):
            yield bisect.bisect(lengths, u) + 1, int(v * tokens)


def masked_spans(bounds: list[int], spans: Iterable[tuple[int, int]], budget: int) -> np.ndarray:
    """Masks spans until exactly `budget` tokens are masked: bool [tokens].

    A span whose token is already masked is skipped. Any other covers whole words from the word of
    its token on; tokens in it that are already masked do not count. Only the last span may end
    within a word, where the budget ends.

    Args:
      bounds: [W + 1] where each word starts, then the number of tokens.
      spans: pairs of a number of words and the position of a token.
      budget: tokens to mask, at most all.
    """
    masked = bytearray(bounds[-1])
    for words, token in spans if budget else ():
        if masked[token]:
            continue
        first = bisect.bisect(bounds, token) - 1
        start, end = bounds[first], bounds[min(first + words, len(bounds) - 1)]
        fresh = end - start - masked.count(1, start, end)
        while fresh > budget:
            end -= 1
            fresh -= 1 - masked[end]
        masked[start:end] = b"\1" * (end - start)
        budget -= fresh
        if not budget:
            break
    return np.frombuffer(masked, np.bool_)


@dataclasses.dataclass(frozen=True)
class SpanBERT(MaskedTokens):
    """Masks spans of whole words; all tokens of a span become [MASK], or random, or stay.

    A span has 1 to `max_span_length` words, by a geometric distribution with parameter `p` that is
    cut there and renormalised (SpanBERT, section 3.1). `masked_rate` of the text's tokens are
    masked, rounded up; [CLS] and [SEP] do not count. Spans that touch are merged. Then 80 % of the
    spans become [MASK], 10 % become tokens drawn from the training text, and 10 % stay.

    The span-boundary objective (section 3.2) has four features beside the masked positions:
    `boundary_left_positions` and `boundary_right_positions` are the tokens next to the span;
    `boundary_offsets` count the tokens of a span from 0; `boundary_loss_weights` are 0 after the
    first `max_pair_targets` tokens of a span, and in spans at the beginning or end of the text.
    Offsets stay below `max_pair_targets`, the number of rows of the model's table of offsets.
    """

    p: float = 0.2
    max_span_length: int = 10
    masked_rate: float = 0.15
    max_pair_targets: int = 15

    needs = ("cls", "sep", "mask", "word_starts", "counts")

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", float(self.p))
        check_share(self, "masked_rate", zero=False)
        if not 0 < self.p < 1:
            raise ValueError(
                f"SpanBERT: p, with which a span ends after a word, is between 0 and 1 (both "
                f"excluded), got {self.p}"
            )
        check_count(self, "max_span_length", of="words")
        check_count(self, "max_pair_targets", of="targets of a span's boundaries")

    def _budget(self, tokens: int) -> int:
        return math.ceil(self.masked_rate * tokens)

    def geometry(self, lengths: Mapping[str, int]) -> SentenceBlocks:
        """Whole sentences of one document, with room for [CLS] and [SEP]."""
        room = masking.text_room(lengths, 2)
        return SentenceBlocks(room, cross_documents=False, segments_of=None)

    def sizes(self, n: np.ndarray) -> dict[str, np.ndarray]:
        """The greatest feature lengths for samples of `n` tokens (int [samples])."""
        return {"inputs": n + 2, "masked_positions": np.ceil(self.masked_rate * n).astype(int)}

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, and four about the boundaries of masked spans."""
        inputs = lengths["inputs"]
        predictions = self._budget(inputs - 2)
        return {
            **masked_features(inputs, predictions),
            "boundary_left_positions": FeatureSpec(predictions),
            "boundary_right_positions": FeatureSpec(predictions),
            "boundary_offsets": FeatureSpec(predictions),
            "boundary_loss_weights": FeatureSpec(predictions, "float32"),
        }

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Masks `sample["targets"]` (int [n], any n)."""
        text = sample["targets"]
        tokens, token_type_ids = masking.with_specials(ids, text)
        bounds = word_bounds(word_starts(text, ids)).tolist()
        spans = random_spans(len(text), span_lengths(self.p, self.max_span_length), rng)
        masked = np.zeros(len(tokens), np.bool_)
        masked[1:-1] = masked_spans(bounds, spans, self._budget(len(text)))
        positions = masked.nonzero()[0]
        # Spans that touch have merged: from here on a span is a whole masked run.
        edges = (masked[1:] != masked[:-1]).nonzero()[0].astype(np.int32) + 1
        starts, ends = edges[::2], edges[1::2]
        sizes = ends - starts
        draws = rng.random(len(sizes)).repeat(sizes)
        inputs = masking.masked_copy(
            tokens, positions, rng, ids, random_from=corpus_tokens, draws=draws
        )
        features = masking.example(inputs, token_type_ids, tokens, positions)
        return features | self._boundaries(
            features["masked_positions"], starts.repeat(sizes), ends.repeat(sizes), len(text)
        )

    def _boundaries(
        self, positions: np.ndarray, starts: np.ndarray, ends: np.ndarray, last: int
    ) -> dict[str, np.ndarray]:
        """The boundary features of masked positions in spans [start, end), int32 [k] each.

        `last` is the position of the last token of the text.
        """
        offsets = positions - starts
        most = self.max_pair_targets
        paired = (starts > 1) & (ends <= last) & (offsets < most)
        return {
            "boundary_left_positions": starts - 1,
            "boundary_right_positions": ends,
            "boundary_offsets": np.minimum(offsets, most - 1),
            "boundary_loss_weights": paired.astype(np.float32),
        }


PRESETS = {"spanbert": SpanBERT()}
SUMMARIES = {
    "spanbert": "masked spans of whole words, predicted from their boundaries too (SpanBERT)"
}

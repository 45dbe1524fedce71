"""ALBERT: masked n-grams of whole words, and the order of two texts."""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.drawing import thresholds
from t5x_like.objectives.parts.formats import MaskedTokens, masked_features
from t5x_like.objectives.parts.probabilities import check_count, check_share
from t5x_like.objectives.parts.sentence_order import in_random_order
from t5x_like.objectives.parts.sentence_pairs import SentencePairs
from t5x_like.objectives.parts.words import word_bounds, word_starts

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


@functools.lru_cache
def ngram_lengths(longest: int, favor_shorter: bool) -> tuple[float, ...]:
    """`drawing.thresholds` of the words of an n-gram, less 1: shares 1/n, or the reverse."""
    shares = [1 / n for n in range(1, longest + 1)]
    return thresholds(shares if favor_shorter else shares[::-1])


def masked_ngrams(
    bounds: list[int],
    separator: int,
    fixed: bytes | bytearray,
    *,
    lengths: tuple[float, ...],
    budget: int,
    rng: np.random.Generator,
) -> list[tuple[int, int]]:
    """The n-grams of whole words to mask, as (start, end) positions in the order of the draws.

    Words are visited in random order. Each draws the length of the n-gram that it begins, which is
    cut to the words left in its text and to the budget left. An n-gram without words, or with a
    masked word, is skipped. So a word longer than the budget is skipped, and a sample of such
    words alone has no masked position.

    In the published code an n-gram may continue from the end of one text to the beginning of the
    other, since [SEP] is not among its words. Here it does not, as those words do not follow each
    other in any text. At length 512 one n-gram in some 600 would.

    Args:
      bounds: [W + 1] the start of each word of "[CLS] A [SEP]" or "[CLS] A [SEP] B [SEP]", with
        each special token as a word, then the number of tokens.
      separator: the index of the first [SEP] among the words.
      fixed: [tokens] 1 where a token may not be masked: at [CLS] and [SEP].
      lengths: the result of `ngram_lengths`.
      budget: the most tokens to mask.
      rng: the generator.
    """
    covered = bytearray(fixed)
    last = len(bounds) - 2
    chosen = []
    order = (rng.permutation(last - 1) + 1).tolist()
    for word, u in zip(order, rng.random(last - 1).tolist(), strict=True):
        start = bounds[word]
        end = min(word + 1 + bisect.bisect(lengths, u), separator if word < separator else last)
        while bounds[end] - start > budget:
            end -= 1
        stop = bounds[end]
        if stop == start or covered.find(1, start, stop) >= 0:
            continue
        covered[start:stop] = b"\1" * (stop - start)
        chosen.append((start, stop))
        budget -= stop - start
        if not budget:
            break
    return chosen


@dataclasses.dataclass(frozen=True)
class ALBERT(MaskedTokens):
    """Masks n-grams of whole words in two texts that come in order or swapped.

    An n-gram has 1 to `ngram` words, n with probability proportional to 1/n (ALBERT, section 4.1),
    or to 1 / (ngram + 1 - n) without `favor_shorter`. 80 % of its tokens become [MASK] and 10 %
    random, each independently. `sentence_order_label` is for sentence-order prediction (section
    3.1). `max_predictions`, where it is a number, is the most tokens to mask (20 in the published
    code, which is few at length 512). An epoch reads a text `dupe_factor` times, each time cut into
    other pairs (40 times in the published code).
    """

    ngram: int = 3
    favor_shorter: bool = True
    masked_rate: float = 0.15
    max_predictions: int | None = None
    dupe_factor: int = 1

    needs = ("cls", "sep", "mask", "word_starts")

    def __post_init__(self) -> None:
        check_share(self, "masked_rate", zero=False)
        check_count(self, "ngram", of="words")
        if self.max_predictions is not None and self.max_predictions < 1:
            raise ValueError(
                f"ALBERT: max_predictions is at least 1, or None for no limit but masked_rate, "
                f"got {self.max_predictions}"
            )
        check_count(self, "dupe_factor", of="passes")

    def _budget(self, tokens: int) -> int:
        budget = masking.budget(tokens, self.masked_rate)
        return min(budget, self.max_predictions or budget)

    def geometry(self, lengths: Mapping[str, int]) -> SentencePairs:
        """Two consecutive texts of a document, with room for [CLS] and two [SEP]."""
        room = masking.text_room(lengths, 3, texts=2)
        return SentencePairs(room, passes=self.dupe_factor, random_probability=0.0)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, and `sentence_order_label`."""
        inputs = lengths["inputs"]
        return {
            **masked_features(inputs, self._budget(inputs)),
            "sentence_order_label": FeatureSpec(None),
        }

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Masks `first` and `second` (int [n] and [m], any n and m), swapped or not."""
        first, second, label = in_random_order(sample, rng)
        tokens, token_type_ids = masking.with_specials(ids, first, second)
        bounds = word_bounds(word_starts(tokens, ids)).tolist()
        separator = bisect.bisect_left(bounds, len(first) + 1)
        fixed = bytearray((tokens == ids.cls) | (tokens == ids.sep))
        lengths = ngram_lengths(self.ngram, self.favor_shorter)
        covered = np.zeros(len(tokens), np.bool_)
        for start, end in masked_ngrams(
            bounds, separator, fixed, lengths=lengths, budget=self._budget(len(tokens)), rng=rng
        ):
            covered[start:end] = True
        positions = covered.nonzero()[0]
        inputs = masking.masked_copy(tokens, positions, rng, ids)
        return {
            **masking.example(inputs, token_type_ids, tokens, positions),
            "sentence_order_label": label,
        }


PRESETS = {"albert": ALBERT()}
SUMMARIES = {"albert": "masked n-grams of whole words, and sentence order prediction (ALBERT)"}

"""RoBERTa's dynamic masking, on its four input formats."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.derived import once_per_vocabulary
from t5x_like.objectives.parts.formats import MaskedTokens, masked_features
from t5x_like.objectives.parts.probabilities import check_share
from t5x_like.objectives.parts.sentence_blocks import SentenceBlocks
from t5x_like.objectives.parts.sentence_pairs import SentencePairs, SingleSentencePairs
from t5x_like.objectives.parts.words import word_bounds, word_starts

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class _DynamicMasking(MaskedTokens):
    """The masking that the formats share; all token_type_ids are 0, as RoBERTa has no segments.

    Every position may be predicted, including special tokens. Of n positions, `masked_rate` * n
    are predicted on average: the number is rounded up or down at random (the published code).

    Attributes:
      masked_rate: the share of the positions to predict.
      whole_words: predicts that share of the words, each with all its pieces. A word is masked,
        replaced or kept as a whole. A word is skipped if it would raise the predictions above
        twice `masked_rate` of the tokens (the published code has no such limit).
    """

    masked_rate: float = 0.15
    whole_words: bool = False

    def __post_init__(self) -> None:
        check_share(self, "masked_rate", zero=False)
        if self.whole_words:
            object.__setattr__(self, "needs", (*type(self).needs, "word_starts"))

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, with the predictions that full inputs need."""
        return masked_features(lengths["inputs"], self._most(lengths["inputs"]))

    def _most(self, tokens: int) -> int:
        most = math.ceil(self.masked_rate * tokens)
        return min(2 * most, tokens) if self.whole_words else most

    def _masked(
        self, inputs: np.ndarray, rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Masks inputs (int32 [n], special tokens included) and returns the features."""
        draws = None
        if self.whole_words:
            bounds = word_bounds(word_starts(inputs, ids))
            starts, sizes = bounds[:-1], bounds[1:] - bounds[:-1]
            words = _uniform(len(sizes), self.masked_rate, rng, shuffle=True)
            words = masking.words_that_fit(words, sizes, self._most(len(inputs)))
            positions = masking.span_positions(starts[words], sizes[words])
            draws = np.repeat(rng.random(len(words)), sizes[words])
        else:
            positions = _uniform(len(inputs), self.masked_rate, rng)
        noisy = masking.masked_copy(
            inputs, positions, rng, ids, random_from=_not_special, draws=draws
        )
        return masking.example(noisy, np.zeros(len(inputs), np.int32), inputs, positions)


def _uniform(n: int, rate: float, rng: np.random.Generator, *, shuffle: bool = False) -> np.ndarray:
    """Distinct numbers below n; their count is `rate` * n, rounded up or down at random."""
    fraction, whole = math.modf(rate * n)
    chosen = int(whole) + (rng.random() < fraction)
    return rng.choice(n, chosen, replace=False, shuffle=shuffle)


@once_per_vocabulary
def _replacements(ids: TokenIds) -> np.ndarray:
    """The ids that may replace others: [MASK], and all that are not special.

    In RoBERTa's vocabulary these are all but the first four.
    """
    return np.delete(np.arange(ids.vocab_size), [i for i in ids.special if i != ids.mask])


def _not_special(rng: np.random.Generator, ids: TokenIds, size: int) -> np.ndarray:
    allowed = _replacements(ids)
    return allowed[rng.integers(len(allowed), size=size)]


def _separated(tokens: np.ndarray, ends: np.ndarray, ids: TokenIds) -> np.ndarray:
    """int32: "<s>", then the tokens with "</s>" inserted at each of the ascending offsets `ends`.

    An offset that occurs twice gets two "</s>".
    """
    inputs = np.full(1 + len(tokens) + len(ends), ids.sep, np.int32)
    inputs[0] = ids.given("cls")
    is_text = np.ones(len(inputs), np.bool_)
    is_text[0] = False
    is_text[ends + np.arange(1, len(ends) + 1)] = False
    inputs[is_text] = tokens
    return inputs


@dataclasses.dataclass(frozen=True)
class PairedSegments(_DynamicMasking):
    """Masked tokens of "<s> A </s> </s> B </s>", and whether B follows A or is random text.

    `next_sentence_label` is 0 where B follows and 1 where it is random (RoBERTa, section 4.2).

    Attributes:
      single_sentences: True for SENTENCE-PAIR, with two sentences; False for SEGMENT-PAIR, with
        two segments of several sentences. These are BERT's, but none is short on purpose
        (section 3.1).
    """

    single_sentences: bool = False

    def geometry(self, lengths: Mapping[str, int]) -> SentencePairs | SingleSentencePairs:
        """Pairs whose length is that of the inputs less four special tokens.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        room = masking.text_room(lengths, 4, texts=2)
        if self.single_sentences:
            return SingleSentencePairs(room)
        return SentencePairs(room, short_probability=0.0)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, and the number `next_sentence_label`."""
        return super().features(lengths) | {"next_sentence_label": FeatureSpec(None)}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Masks `sample["first"]` and `sample["second"]` (int [a] and [b])."""
        first, second = sample["first"], sample["second"]
        inputs = np.full(len(first) + len(second) + 4, ids.sep, np.int32)
        inputs[0] = ids.given("cls")
        inputs[1 : len(first) + 1] = first
        inputs[len(first) + 3 : -1] = second
        label = np.asarray(sample["is_random"], np.int32)
        return self._masked(inputs, rng, ids) | {"next_sentence_label": label}


@dataclasses.dataclass(frozen=True)
class PackedSentences(_DynamicMasking):
    """Masked tokens of as many whole sentences as fit: "<s> sentence </s> sentence </s> ...".

    Each sentence is followed by a separator, and documents are divided by one more (RoBERTa,
    section 4.2 and the published code).

    Attributes:
      cross_documents: True for FULL-SENTENCES, where a row continues with the next document;
        False for DOC-SENTENCES, where it does not.
    """

    cross_documents: bool = True

    def geometry(self, lengths: Mapping[str, int]) -> SentenceBlocks:
        """Whole sentences that fill the inputs together with their separators.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        room = masking.text_room(lengths, 2) + 1
        return SentenceBlocks(room, self.cross_documents, per_segment=1, per_document=1)

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Masks `sample["targets"]` (int [n], any n) with a separator after each segment."""
        tokens = sample["targets"]
        ends = np.concatenate((sample["segments"], sample["documents"], [len(tokens)]))
        return self._masked(_separated(tokens, np.sort(ends), ids), rng, ids)


PRESETS = {
    "segment_pair": PairedSegments(),
    "sentence_pair": PairedSegments(single_sentences=True),
    "full_sentences": PackedSentences(),
    "doc_sentences": PackedSentences(cross_documents=False),
}

SUMMARIES = {
    "segment_pair": "masked tokens of two segments, and next sentence prediction (RoBERTa)",
    "sentence_pair": "masked tokens of two sentences, and next sentence prediction (RoBERTa)",
    "full_sentences": "masked tokens of whole sentences, across documents (RoBERTa)",
    "doc_sentences": "masked tokens of whole sentences of one document (RoBERTa)",
}

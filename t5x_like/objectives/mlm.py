"""BERT's objectives: masked tokens or words, static or dynamic, alone or with sentence pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.formats import MaskedTokens, masked_features
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit, Duplicated, SplitDocuments
from t5x_like.objectives.parts.probabilities import check_count, check_share
from t5x_like.objectives.parts.sentence_order import in_random_order
from t5x_like.objectives.parts.sentence_pairs import SentencePairs
from t5x_like.objectives.parts.words import word_bounds, word_starts

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class MaskedLM(MaskedTokens):
    """Predicts 15 % of the tokens: 80 % of these become [MASK], 10 % a random id, 10 % stay.

    Rows are "[CLS] text [SEP]" with running text (BERT, section 3.1). The share is that of all
    tokens, special ones included, but special tokens are never predicted.

    Attributes:
      masked_rate: the share of the inputs to predict.
      max_predictions: the most predictions of an example; None sets no limit beside `masked_rate`
        (BERT's code: 20 at length 128).
      whole_words: predicts all pieces of a word or none; each piece is replaced independently.
      static: masks a sample in the same way in every epoch.
      dupe_factor: how many samples, each with its own noise, an epoch makes of each text.
    """

    masked_rate: float = 0.15
    max_predictions: int | None = None
    whole_words: bool = False
    static: bool = False
    dupe_factor: int = 1

    shares: ClassVar[Mapping[str, float]] = {"mask": 0.8, "random": 0.1}  # what becomes of them

    def __post_init__(self) -> None:
        check_share(self, "masked_rate", zero=False)
        name = type(self).__name__
        if self.max_predictions is not None and self.max_predictions < 1:
            raise ValueError(
                f"{name}: max_predictions is at least 1, or None for as many as the rate gives, "
                f"got {self.max_predictions}"
            )
        check_count(self, "dupe_factor", of="passes")
        if self.whole_words:
            object.__setattr__(self, "needs", (*type(self).needs, "word_starts"))

    def geometry(self, lengths: Mapping[str, int]) -> Any:
        """Running text whose length is that of the inputs less two special tokens.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        text = ConcatenateAndSplit(masking.text_room(lengths, 2))
        return text if self.dupe_factor == 1 else Duplicated(text, self.dupe_factor)

    def documents(self, lengths: Mapping[str, int]) -> SplitDocuments:
        """Of packed rows: documents, or parts of them that fill the inputs.

        Raises:
          ValueError: as `geometry`; or each text would be read several times (`dupe_factor`).
        """
        if self.dupe_factor > 1:
            raise ValueError(
                f"packed rows have each text once in an epoch: set dupe_factor of "
                f"{type(self).__name__} to 1, not {self.dupe_factor}"
            )
        return SplitDocuments(masking.text_room(lengths, 2))

    def sizes(self, n: np.ndarray) -> dict[str, np.ndarray]:
        """The greatest feature lengths for samples of `n` tokens (int [samples])."""
        most = masking.budgets(n + 2, self.masked_rate)
        if self.max_predictions is not None:
            most = np.minimum(most, self.max_predictions)
        return {"inputs": n + 2, "masked_positions": most}

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, with the predictions that full inputs need."""
        return masked_features(lengths["inputs"], self._budget(lengths["inputs"]))

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Masks `sample["targets"]` (int [n], any n)."""
        return self._masked(*masking.with_specials(ids, sample["targets"]), rng, ids)

    def _budget(self, tokens: int) -> int:
        return min(masking.budget(tokens, self.masked_rate), self.max_predictions or tokens)

    def _masked(
        self,
        inputs: np.ndarray,
        token_type_ids: np.ndarray,
        rng: np.random.Generator,
        ids: TokenIds,
    ) -> dict[str, np.ndarray]:
        """Masks inputs (int32 [n], special tokens included) and returns the features."""
        positions = self._positions(inputs, self._budget(len(inputs)), rng, ids)
        noisy = masking.masked_copy(
            inputs, positions, rng, ids, mask=self.shares["mask"], random=self.shares["random"]
        )
        return masking.example(noisy, token_type_ids, inputs, positions)

    def _positions(
        self, inputs: np.ndarray, budget: int, rng: np.random.Generator, ids: TokenIds
    ) -> np.ndarray:
        """The positions to predict, `budget` or fewer."""
        if self.whole_words:
            return _pieces_of_words(inputs, budget, rng, ids)
        return _some(masking.text_positions(inputs, ids), budget, rng)


def _some(positions: np.ndarray, budget: int, rng: np.random.Generator) -> np.ndarray:
    """`budget` random ones of some positions, or all where there are fewer."""
    return rng.choice(positions, min(budget, len(positions)), replace=False, shuffle=False)


def _pieces_of_words(
    inputs: np.ndarray, budget: int, rng: np.random.Generator, ids: TokenIds
) -> np.ndarray:
    """Random positions of whole words, `budget` pieces in all or a few less (BERT's code)."""
    bounds = word_bounds(word_starts(inputs, ids))
    starts, sizes = bounds[:-1], bounds[1:] - bounds[:-1]
    words = rng.permutation(masking.text_positions(inputs[starts], ids))
    chosen = masking.words_that_fit(words, sizes, budget)
    return masking.span_positions(starts[chosen], sizes[chosen])


@dataclasses.dataclass(frozen=True)
class SpecialsToo(MaskedLM):
    """Masked tokens of running text, of which special ones are predicted like all others.

    The rows that ModernBERT's published code packs are masked so.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.whole_words:
            raise ValueError("SpecialsToo: special tokens are part of no word: use MaskedLM")

    def _positions(
        self, inputs: np.ndarray, budget: int, rng: np.random.Generator, ids: TokenIds
    ) -> np.ndarray:
        return _some(np.arange(len(inputs)), budget, rng)


@dataclasses.dataclass(frozen=True)
class AllMasked(MaskedLM):
    """Masked tokens of running text, each of which becomes [MASK]: none is random or stays.

    So mask the published codes of NeoBERT (Le Breton et al., 2025) and EuroBERT (Boizard et al.,
    2025).
    """

    shares: ClassVar = {"mask": 1.0, "random": 0.0}


@dataclasses.dataclass(frozen=True)
class NextSentence(MaskedLM):
    """Masked tokens of "[CLS] A [SEP] B [SEP]", and whether B follows A or is random text.

    `next_sentence_label` is 0 where B follows and 1 where it is random (BERT, section 3.1). The
    published code draws masks and pairs once for each of its 10 copies of the text.
    """

    def geometry(self, lengths: Mapping[str, int]) -> SentencePairs:
        """Pairs of segments that leave room for three special tokens; new ones for each copy."""
        return SentencePairs(masking.text_room(lengths, 3, texts=2), passes=self.dupe_factor)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, and the number `next_sentence_label`."""
        return super().features(lengths) | {"next_sentence_label": FeatureSpec(None)}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Masks `sample["first"]` and `sample["second"]` (int [a] and [b])."""
        inputs, token_type_ids = masking.with_specials(ids, sample["first"], sample["second"])
        features = self._masked(inputs, token_type_ids, rng, ids)
        return features | {"next_sentence_label": np.asarray(sample["is_random"], np.int32)}


@dataclasses.dataclass(frozen=True)
class SentenceOrder(MaskedLM):
    """Masked tokens of two successive segments, and whether the segments are swapped.

    Half of the pairs are swapped. `sentence_order_label` is 0 in order and 1 swapped. A segment
    without a successor gets a random one, and label 1 (ALBERT, section 3.1 and the published code).
    """

    def geometry(self, lengths: Mapping[str, int]) -> SentencePairs:
        """Pairs of successive segments that leave room for three special tokens."""
        room = masking.text_room(lengths, 3, texts=2)
        return SentencePairs(room, passes=self.dupe_factor, random_probability=0.0)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, and the number `sentence_order_label`."""
        return super().features(lengths) | {"sentence_order_label": FeatureSpec(None)}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Swaps `sample["first"]` and `["second"]` (int [a] and [b]) or not, then masks them."""
        first, second, label = in_random_order(sample, rng)
        features = self._masked(*masking.with_specials(ids, first, second), rng, ids)
        return features | {"sentence_order_label": label}


PRESETS = {
    "mlm": MaskedLM(),
    "mlm_static": MaskedLM(static=True, dupe_factor=10),
    "mlm_whole_word": MaskedLM(whole_words=True),
    "mlm_specials": SpecialsToo(),
    "mlm_all_masked": AllMasked(),
    "mlm_nsp": NextSentence(static=True, dupe_factor=10),
    "mlm_sop": SentenceOrder(),
}

SUMMARIES = {
    "mlm": "masked tokens of running text, with new masks in every epoch (BERT, RoBERTa)",
    "mlm_static": "masked tokens of running text, with ten fixed masks for each row (BERT)",
    "mlm_whole_word": "masked whole words of running text (BERT, whole word masking)",
    "mlm_specials": "masked tokens of running text, special ones included (ModernBERT's code)",
    "mlm_all_masked": "masked tokens of running text, which all become [MASK] (NeoBERT, EuroBERT)",
    "mlm_nsp": "masked tokens of sentence pairs, and next sentence prediction (BERT)",
    "mlm_sop": "masked tokens of sentence pairs, and sentence order prediction (ALBERT)",
}

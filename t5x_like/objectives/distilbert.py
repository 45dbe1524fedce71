"""DistilBERT's masking: rare tokens are predicted more often than frequent ones."""

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
from t5x_like.objectives.parts.geometry import SplitDocuments
from t5x_like.objectives.parts.probabilities import check_share

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

SMOOTHING = 0.7


@once_per_vocabulary
def _scales(ids: TokenIds) -> np.ndarray:
    """float64 [vocab_size]: the inverse of each id's weight; infinite for special ids.

    An id that occurs c times has weight max(c, 1) ** -0.7 (the published code).
    """
    if ids.counts is None:
        raise ValueError(
            "rare tokens are told by how often the training text has them, but this vocabulary "
            "comes without such counts: use a task with a cache, which has counted them"
        )
    scales = np.maximum(ids.counts, 1) ** SMOOTHING
    scales[list(ids.special)] = np.inf
    return scales


@dataclasses.dataclass(frozen=True)
class RareTokens(MaskedTokens):
    """Predicts 15 % of the tokens, with a preference for rare ones; replaced as in BERT.

    Rows are "[CLS] text [SEP]" with text of one document. Tokens are drawn one after another
    without replacement, with probability proportional to count ** -0.7; special tokens are never
    drawn. The published code draws ceil(0.15 n) of the n tokens of a batch, so that examples
    differ in their number of predictions. Here each example has ceil(0.15 n) of its own n. The
    published code also drops lines of 11 tokens or fewer; here none is dropped.
    """

    needs = (*MaskedTokens.needs, "counts")

    masked_rate: float = 0.15

    def __post_init__(self) -> None:
        check_share(self, "masked_rate", zero=False)

    def geometry(self, lengths: Mapping[str, int]) -> SplitDocuments:
        """Pieces of one document that fill the inputs beside two special tokens.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        return SplitDocuments(masking.text_room(lengths, 2))

    def sizes(self, n: np.ndarray) -> dict[str, np.ndarray]:
        """The greatest feature lengths for samples of `n` tokens (int [samples])."""
        return {
            "inputs": n + 2,
            "masked_positions": np.ceil(self.masked_rate * (n + 2)).astype(int),
        }

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """The features of a masked encoder, with the predictions that full inputs need."""
        return masked_features(lengths["inputs"], math.ceil(self.masked_rate * lengths["inputs"]))

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Masks `sample["targets"]` (int [n], any n)."""
        inputs, token_type_ids = masking.with_specials(ids, sample["targets"])
        # The smallest exponential times, with the weights as rates, are a weighted draw without
        # replacement.
        arrivals = rng.standard_exponential(len(inputs)) * _scales(ids).take(inputs)
        first = np.argsort(arrivals)[: math.ceil(self.masked_rate * len(inputs))]
        positions = first[arrivals[first] < np.inf]
        noisy = masking.masked_copy(inputs, positions, rng, ids)
        return masking.example(noisy, token_type_ids, inputs, positions)


PRESETS = {"distilbert": RareTokens()}

SUMMARIES = {
    "distilbert": "masked tokens of a document, with a preference for rare ones (DistilBERT)"
}

"""CANINE-C's objective: masked words of pairs of texts, whose characters are predicted in any order.

The code of CANINE's pretraining was not published: this follows the paper's words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t5x_like.objectives.mlm import NextSentence

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

_SLOTS = ("masked_positions", "masked_targets", "masked_loss_weights")


@dataclasses.dataclass(frozen=True)
class CanineC(NextSentence):
    """Predicts the characters of 15 % of a pair of texts, in whole words, all of which are masked.

    A word has the white space before it. `masked_positions` come in the order in which they are
    predicted, which is random: each is predicted from those before it (CANINE, Clark et al., 2022,
    section 3.3). Pairs are those of BERT, drawn again in each epoch.
    """

    whole_words: bool = True

    shares: ClassVar[Mapping[str, float]] = {"mask": 1.0, "random": 0.0}

    def _masked(
        self,
        inputs: np.ndarray,
        token_type_ids: np.ndarray,
        rng: np.random.Generator,
        ids: TokenIds,
    ) -> dict[str, np.ndarray]:
        """Masks inputs (int32 [n], special tokens included) and returns the features."""
        features = super()._masked(inputs, token_type_ids, rng, ids)
        order = rng.permutation(len(features["masked_positions"]))
        return features | {name: features[name][order] for name in _SLOTS}


PRESETS = {"canine_c": CanineC()}

SUMMARIES = {
    "canine_c": "masked words, character by character in a random order, and next sentences (CANINE)"
}

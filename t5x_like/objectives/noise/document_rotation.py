"""Document rotation: the text begins at a random place, and its beginning follows its end."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.parts.probabilities import check_share

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class DocumentRotation:
    """Rotates the text so that it begins with a random token (BART, section 2.2).

    The text is rotated by 0 to n places, each equally likely, as BART's code also counts the end of
    sequence as a place to begin. So a text of n tokens stays unchanged with probability
    2 / (n + 1).
    """

    needs = ()

    probability: float = 1.0

    def __post_init__(self) -> None:
        check_share(self, "probability")

    def __call__(self, tokens: np.ndarray, rng: np.random.Generator, ids: TokenIds) -> np.ndarray:
        """int32 [n] for int32 [n], any n."""
        if rng.random() >= self.probability:
            return tokens
        places = rng.integers(len(tokens) + 1)
        return np.concatenate([tokens[places:], tokens[:places]])

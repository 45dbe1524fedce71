"""Noise on single tokens: some of them masked, or deleted."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.objectives.parts.probabilities import check_share

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


def random_ids(count: int, rng: np.random.Generator, ids: TokenIds) -> np.ndarray:
    """int64 [count]: random ids of the whole vocabulary except 0, as in BART's code."""
    return rng.integers(1, ids.vocab_size, count)


def mask_or_random(
    count: int, rng: np.random.Generator, ids: TokenIds, mask_random: float
) -> np.ndarray:
    """int32 [count]: masks, each replaced by a random id with probability `mask_random`."""
    masks = np.full(count, ids.mask, np.int32)
    if mask_random:
        random = rng.random(count) < mask_random
        masks[random] = random_ids(int(np.count_nonzero(random)), rng, ids)
    return masks


@dataclasses.dataclass(frozen=True)
class TokenMasking:
    """Replaces the share `rate` of the tokens, rounded up, by masks (BART, section 2.2).

    Each mask becomes a random id with probability `mask_random`.
    """

    needs = ("mask",)

    rate: float = 0.15
    mask_random: float = 0.0

    def __post_init__(self) -> None:
        check_share(self, "rate")
        check_share(self, "mask_random")

    def __call__(self, tokens: np.ndarray, rng: np.random.Generator, ids: TokenIds) -> np.ndarray:
        """int32 [n] for int32 [n], any n."""
        masked = math.ceil(len(tokens) * self.rate)
        noisy = tokens.copy()
        where = rng.choice(len(tokens), masked, replace=False, shuffle=False)
        noisy[where] = mask_or_random(masked, rng, ids, self.mask_random)
        return noisy


@dataclasses.dataclass(frozen=True)
class TokenDeletion:
    """Removes the share `rate` of the tokens, rounded up (BART, section 2.2)."""

    needs = ()

    rate: float = 0.15

    def __post_init__(self) -> None:
        check_share(self, "rate")

    def __call__(self, tokens: np.ndarray, rng: np.random.Generator, ids: TokenIds) -> np.ndarray:
        """int32 [n - ceil(n * rate)] for int32 [n], any n."""
        deleted = math.ceil(len(tokens) * self.rate)
        stays = np.ones(len(tokens), np.bool_)
        stays[rng.choice(len(tokens), deleted, replace=False, shuffle=False)] = False
        return tokens[stays]

"""Corruptions: how inputs or targets are made from a text and its noise mask.

Each is called with tokens (int32 [n]), their mask (bool [n], True is noise), a generator and the
vocabulary's ids, and returns new tokens, int32 [m] with m <= n. Its `needs`, where it has them,
name what the vocabulary must have, as in `protocols.Objective`. The mask token is T5's, sentinel 0,
even where the vocabulary has a [MASK].
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t5x_like.objectives.parts.derived import once_per_vocabulary
from t5x_like.objectives.parts.probabilities import check_share
from t5x_like.objectives.parts.sentinel_spans import replace_runs

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class Original:
    """The text as it is."""

    def __call__(
        self, tokens: np.ndarray, mask: np.ndarray, rng: np.random.Generator, ids: TokenIds
    ) -> np.ndarray:
        return tokens


@dataclasses.dataclass(frozen=True)
class CleanTokens:
    """The clean tokens; noise is dropped."""

    def __call__(
        self, tokens: np.ndarray, mask: np.ndarray, rng: np.random.Generator, ids: TokenIds
    ) -> np.ndarray:
        return tokens[~mask]


@dataclasses.dataclass(frozen=True)
class NoiseTokens:
    """The noise tokens; clean tokens are dropped."""

    def __call__(
        self, tokens: np.ndarray, mask: np.ndarray, rng: np.random.Generator, ids: TokenIds
    ) -> np.ndarray:
        return tokens[mask]


@dataclasses.dataclass(frozen=True)
class NoiseToSentinels:
    """Each run of noise becomes a sentinel, the k-th run sentinel k."""

    needs: ClassVar = ("sentinels",)

    def __call__(
        self, tokens: np.ndarray, mask: np.ndarray, rng: np.random.Generator, ids: TokenIds
    ) -> np.ndarray:
        return replace_runs(tokens, mask, ids=ids)


@dataclasses.dataclass(frozen=True)
class CleanToSentinels:
    """Each run of clean tokens becomes a sentinel, the k-th run sentinel k.

    Runs of clean tokens have their own count, as in T5's code. So in a text that begins with noise,
    the first noise has no sentinel before it, and sentinel k stands before the noise that is
    sentinel k + 1 in `NoiseToSentinels`.
    """

    needs: ClassVar = ("sentinels",)

    def __call__(
        self, tokens: np.ndarray, mask: np.ndarray, rng: np.random.Generator, ids: TokenIds
    ) -> np.ndarray:
        return replace_runs(tokens, ~mask, ids=ids)


@dataclasses.dataclass(frozen=True)
class MaskNoise:
    """Each noise token becomes the mask token, or a random one, or is kept.

    Attributes:
      random: the probability of a random token, which may be a sentinel but no special token.
      kept: the probability that the token stays.
    """

    needs: ClassVar = ("sentinels",)

    random: float = 0.0
    kept: float = 0.0

    def __post_init__(self) -> None:
        for name in ("random", "kept"):
            check_share(self, name)
        if self.random + self.kept > 1:
            raise ValueError(
                f"MaskNoise: random and kept add up to at most 1, got {self.random} and {self.kept}"
            )

    def __call__(
        self, tokens: np.ndarray, mask: np.ndarray, rng: np.random.Generator, ids: TokenIds
    ) -> np.ndarray:
        masked = tokens.copy()
        masked[mask] = ids.sentinel(0)
        if self.random or self.kept:
            noise = mask.nonzero()[0]
            draws = rng.random(len(noise))
            randomized = noise[draws < self.random]
            masked[randomized] = ordinary_ids(len(randomized), rng, ids)
            unchanged = noise[draws >= 1 - self.kept]
            masked[unchanged] = tokens[unchanged]
        return masked


@dataclasses.dataclass(frozen=True)
class ShuffleNoise:
    """The noise tokens in random order; clean tokens keep their places."""

    def __call__(
        self, tokens: np.ndarray, mask: np.ndarray, rng: np.random.Generator, ids: TokenIds
    ) -> np.ndarray:
        shuffled = tokens.copy()
        shuffled[mask] = rng.permutation(tokens[mask])
        return shuffled


def ordinary_ids(size: int, rng: np.random.Generator, ids: TokenIds) -> np.ndarray:
    """Ids drawn from all but the special ones: int64 [size].

    With T5's vocabulary these are 3 to 32,099, sentinels included, as in its published code.
    """
    steps = _special_below(ids)
    drawn = rng.integers(ids.vocab_size - len(steps), size=size)
    return drawn + steps.searchsorted(drawn, side="right")


@once_per_vocabulary
def _special_below(ids: TokenIds) -> np.ndarray:
    """The number of ordinary ids below each special id."""
    special = np.array(ids.special)
    return special - np.arange(len(special))

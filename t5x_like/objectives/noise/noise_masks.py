"""Noise masks: which tokens of a sample are corrupted (True)."""

from __future__ import annotations

import dataclasses

import numpy as np

from t5x_like.objectives.parts.probabilities import check_share


def span_counts(length: int, *, noise_density: float, mean_span_length: float) -> tuple[int, int]:
    """The numbers of noise tokens and of noise spans in a sample of `length` tokens.

    Both are at least one, and every span follows a clean token. The numbers are Python floats,
    halves are rounded to even, and nothing else rounds them: so the lengths declared before
    training agree with the masks drawn in training.
    """
    length = max(length, 2)
    noise = min(max(round(length * noise_density), 1), length - 1)
    spans = max(round(noise / mean_span_length), 1)
    return noise, min(spans, length - noise)


def random_cuts(total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """Cuts `total` in `parts` of at least one: int64 [parts + 1] from 0 to `total`.

    Every composition is equally likely: each of the `total - 1` inner gaps gets a random key, and
    the `parts - 1` smallest keys are the cuts.
    """
    cuts = np.empty(parts + 1, np.int64)
    cuts[0], cuts[-1] = 0, total
    if parts > 1:
        keys = rng.random(total - 1)
        ordered = keys.copy()
        ordered.partition(parts - 2)
        cuts[1:-1] = (keys <= ordered[parts - 2]).nonzero()[0] + 1
    return cuts


def random_span_starts(
    length: int, rng: np.random.Generator, *, noise_density: float, mean_span_length: float
) -> tuple[np.ndarray, np.ndarray]:
    """Where clean and noise runs of random lengths start: int64 [spans] each (T5, section 3.1.4).

    The runs alternate; the first is clean and the last is noise. `span_counts` gives the numbers of
    noise tokens and runs. The order of the two draws decides the data of every run: do not change
    it.
    """
    if length < 2:
        return np.arange(length), np.arange(0)
    noise, spans = span_counts(
        length, noise_density=noise_density, mean_span_length=mean_span_length
    )
    noise_cuts = random_cuts(noise, spans, rng)[:-1]
    clean_cuts = random_cuts(length - noise, spans, rng)
    return clean_cuts[:-1] + noise_cuts, clean_cuts[1:] + noise_cuts


def mask_of_spans(length: int, clean_starts: np.ndarray, noise_starts: np.ndarray) -> np.ndarray:
    """The noise mask with clean and noise runs that start at these places: bool [length]."""
    change = np.zeros(length, np.int8)
    change[noise_starts] = 1
    change[clean_starts[1:]] = -1
    return change.cumsum(dtype=np.int8).view(np.bool_)


@dataclasses.dataclass(frozen=True)
class IidNoise:
    """Each token is noise independently, with probability `density` (BERT, section 3.1)."""

    density: float = 0.15

    def __post_init__(self) -> None:
        check_share(self, "density")

    def __call__(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """A mask, bool [length]."""
        return rng.random(length) < self.density


@dataclasses.dataclass(frozen=True)
class SuffixNoise:
    """All tokens from a random place on are noise, a share `density` of the text on average.

    The clean prefix has `(1 - 2 * density) * (n - 1)` to n - 1 tokens, and at least one; every
    number is equally likely (T5's published code). 0.5 cuts anywhere, 0.25 in the second half.
    """

    density: float = 0.5

    def __post_init__(self) -> None:
        check_share(self, "density")
        if self.density > 0.5:
            raise ValueError(f"SuffixNoise: density is at most 0.5, got {self.density}")

    def __call__(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """A mask, bool [length]; a single token is noise."""
        mask = np.ones(length, np.bool_)
        if length > 1:
            shortest = max(1, round((1 - 2 * self.density) * (length - 1)))
            mask[: rng.integers(shortest, length)] = False
        return mask


@dataclasses.dataclass(frozen=True)
class FragmentNoise:
    """One run of tokens is noise: a share `density` of the text, from a random place.

    The first token is never noise (MASS, section 3.2 and the published code).
    """

    density: float = 0.5

    def __post_init__(self) -> None:
        check_share(self, "density")

    def __call__(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """A mask, bool [length]; a text of several tokens has at least one True."""
        mask = np.zeros(length, np.bool_)
        if length > 1:
            size = min(max(1, int(length * self.density)), length - 1)
            start = rng.integers(1, length - size + 1)
            mask[start : start + size] = True
        return mask

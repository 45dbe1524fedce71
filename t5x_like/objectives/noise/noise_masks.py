"""Noise masks: which tokens of a sample are corrupted (True)."""

from __future__ import annotations

import dataclasses

import numpy as np

from t5x_like.objectives.parts.probabilities import check_share


def span_counts(length: int, *, noise_density: float, mean_span_length: float) -> tuple[int, int]:
    """How many noise tokens, in how many spans, a sample of `length` tokens gets.

    Python floats throughout (rounding half to even), and the one place where they are rounded:
    the lengths promised before training and the masks drawn in it cannot differ by a token.
    Both counts are at least one, and every span is preceded by a clean token.
    """
    length = max(length, 2)
    noise = min(max(round(length * noise_density), 1), length - 1)
    spans = max(round(noise / mean_span_length), 1)
    return noise, min(spans, length - noise)


def random_cuts(total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """Cuts `total` in `parts` of at least one: int64 [parts + 1] from 0 to `total`.

    Every composition is as likely: the cuts are the `parts - 1` of the `total - 1` inner gaps with
    the smallest random keys.
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

    They alternate, a clean one first and noise at the end; the numbers of noise tokens and runs are
    those of `span_counts`. The order of the two draws is part of the data of every run: do not
    change it.
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
    """The noise mask whose runs start there: bool [length]."""
    change = np.zeros(length, np.int8)
    change[noise_starts] = 1
    change[clean_starts[1:]] = -1
    return change.cumsum(dtype=np.int8).view(np.bool_)


@dataclasses.dataclass(frozen=True)
class IidNoise:
    """Each token is noise or not by itself, with probability `density` (BERT, section 3.1)."""

    density: float = 0.15

    def __post_init__(self) -> None:
        check_share(self, "density")

    def __call__(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """A mask, bool [length]."""
        return rng.random(length) < self.density


@dataclasses.dataclass(frozen=True)
class SuffixNoise:
    """All tokens from a random place on are noise, a share `density` of them on average.

    The clean prefix has `(1 - 2 * density) * (n - 1)` to n - 1 tokens, at least one, every number
    as likely (the published code of T5): 0.5 cuts anywhere, 0.25 in the second half.
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
    """One run of tokens is noise: a share `density` of them, from a random place.

    Every place but the very start, since the first token is never noise (MASS, section 3.2 and the
    published code).
    """

    density: float = 0.5

    def __post_init__(self) -> None:
        check_share(self, "density")

    def __call__(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """A mask, bool [length]; it has at least one True unless there is but one token."""
        mask = np.zeros(length, np.bool_)
        if length > 1:
            size = min(max(1, int(length * self.density)), length - 1)
            start = rng.integers(1, length - size + 1)
            mask[start : start + size] = True
        return mask

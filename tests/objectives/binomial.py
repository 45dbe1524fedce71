"""Counts of random draws against the probabilities of a closed form."""

from __future__ import annotations

import math

import numpy as np


def assert_within_5_sigma(counts: np.ndarray, probabilities: np.ndarray, draws: int) -> None:
    """Binomial counts; cells too rare for the normal approximation are pooled into one."""
    counts, probabilities = np.asarray(counts), np.asarray(probabilities, np.float64)
    common = draws * probabilities * (1 - probabilities) > 10
    for observed, p in [
        *zip(counts[common], probabilities[common], strict=True),
        (counts[~common].sum(), probabilities[~common].sum()),
    ]:
        assert abs(observed - draws * p) <= 5 * math.sqrt(max(0, draws * p * (1 - p))) + 1e-9


def assert_mean_within_5_sigma(values: np.ndarray, mean: float, deviation: float) -> None:
    """The mean of independent draws that deviate by so much (standard deviation)."""
    assert abs(np.mean(values) - mean) <= 5 * deviation / math.sqrt(len(values))

"""Noise masks: which tokens of a sample are corrupted (True)."""

from __future__ import annotations

import numpy as np


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


def random_parts(total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """Splits `total` into `parts` positive integers (int64 [parts]), every composition as likely.

    The cuts are the `parts - 1` of the `total - 1` inner gaps with the smallest random keys.
    """
    edges = np.empty(parts + 1, np.int64)
    edges[0], edges[-1] = 0, total
    if parts > 1:
        keys = rng.random(total - 1)
        edges[1:-1] = np.flatnonzero(keys <= np.partition(keys, parts - 2)[parts - 2]) + 1
    return edges[1:] - edges[:-1]


def random_spans(
    length: int, rng: np.random.Generator, *, noise_density: float, mean_span_length: float
) -> np.ndarray:
    """Alternating clean and noise runs of random lengths: bool [length] (T5, section 3.1.4).

    Starts clean and ends in noise; the numbers of noise tokens and runs are those of
    `span_counts`. The order of the two draws is part of the data of every run: do not change it.
    """
    noise, spans = span_counts(
        length, noise_density=noise_density, mean_span_length=mean_span_length
    )
    runs = np.empty(2 * spans, np.int64)
    runs[1::2] = random_parts(noise, spans, rng)
    runs[0::2] = random_parts(max(length, 2) - noise, spans, rng)
    is_noise = np.zeros(2 * spans, np.bool_)
    is_noise[1::2] = True
    return np.repeat(is_noise, runs)[:length]

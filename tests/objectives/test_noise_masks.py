"""Random-span masks: exact counts, and distributions against their closed forms."""

from __future__ import annotations

import itertools
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np

from t5x_like.objectives.noise_masks import random_parts, random_spans, span_counts

RAW, NOISE, SPANS = 568, 85, 28
DRAWS = 20_000
DENSITY = {"noise_density": 0.15, "mean_span_length": 3.0}


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def assert_within_5_sigma(counts: np.ndarray, probabilities: np.ndarray, draws: int) -> None:
    """Binomial counts; cells too rare for the normal approximation are pooled into one."""
    common = draws * probabilities * (1 - probabilities) > 10
    for observed, p in [
        *zip(counts[common], probabilities[common], strict=True),
        (counts[~common].sum(), probabilities[~common].sum()),
    ]:
        assert abs(observed - draws * p) <= 5 * math.sqrt(draws * p * (1 - p)) + 1e-9


def part_pmf(total: int, parts: int) -> np.ndarray:
    """P(one part = l) for l = 0 .. total, over uniform compositions."""
    pmf = np.zeros(total + 1)
    for length in range(1, total - parts + 2):
        pmf[length] = math.comb(total - length - 1, parts - 2) / math.comb(total - 1, parts - 1)
    return pmf


def partial_sum_pmf(total: int, parts: int, first: int) -> np.ndarray:
    """P(the first `first` parts sum to c) for c = 0 .. total."""
    pmf = np.zeros(total + 1)
    if first in (0, parts):
        pmf[0 if first == 0 else total] = 1.0
        return pmf
    for c in range(first, total - parts + first + 1):
        ways = math.comb(c - 1, first - 1) * math.comb(total - c - 1, parts - first - 1)
        pmf[c] = ways / math.comb(total - 1, parts - 1)
    return pmf


def position_pmf() -> np.ndarray:
    """P(position i is noise): a noise run has begun at or before i and has not ended."""
    clean = RAW - NOISE
    probability = np.zeros(RAW)
    for k in range(1, SPANS + 1):
        clean_before = partial_sum_pmf(clean, SPANS, k)
        start = np.convolve(clean_before, partial_sum_pmf(NOISE, SPANS, k - 1))
        end = np.convolve(clean_before, partial_sum_pmf(NOISE, SPANS, k))
        probability += (np.cumsum(start) - np.cumsum(end))[:RAW]
    return probability


def test_every_composition_is_as_likely():
    rng, draws = generator(1), 20_000
    compositions = {c: 0 for c in itertools.product(range(1, 5), repeat=3) if sum(c) == 6}
    for _ in range(draws):
        compositions[tuple(random_parts(6, 3, rng).tolist())] += 1
    p = np.full(len(compositions), 1 / math.comb(5, 2))
    assert len(compositions) == 10
    assert_within_5_sigma(np.array(list(compositions.values())), p, draws)


def test_run_lengths_follow_the_composition_law():
    rng = generator(2)
    noise = np.array([random_parts(NOISE, SPANS, rng) for _ in range(DRAWS)])
    clean = np.array([random_parts(RAW - NOISE, SPANS, rng) for _ in range(DRAWS)])
    pmf = part_pmf(NOISE, SPANS)
    assert math.isclose(pmf[1], 27 / 84)
    assert math.isclose(pmf[10:].sum(), 0.0244, abs_tol=5e-5)
    # Runs of one draw are dependent, so each place is tested over the draws.
    for place in (0, 13, 27):
        assert_within_5_sigma(np.bincount(noise[:, place], minlength=NOISE + 1), pmf, DRAWS)
        ones = np.array([(noise[:, place] == 1).sum(), (noise[:, place] >= 10).sum()])
        assert_within_5_sigma(ones, np.array([27 / 84, pmf[10:].sum()]), DRAWS)
        assert_within_5_sigma(
            np.bincount(clean[:, place], minlength=RAW - NOISE + 1),
            part_pmf(RAW - NOISE, SPANS),
            DRAWS,
        )


def test_noise_probability_by_position():
    expected = position_pmf()
    assert math.isclose(expected.sum(), NOISE)
    rng, counts = generator(3), np.zeros(RAW, np.int64)
    for _ in range(DRAWS):
        counts += random_spans(RAW, rng, **DENSITY)
    assert counts[0] == 0
    assert counts[-1] == DRAWS
    assert math.isclose(expected[-1], 1)
    inner = slice(1, -1)
    assert_within_5_sigma(counts[inner], expected[inner], DRAWS)


@hypothesis.given(
    length=st.integers(0, 1500),
    density=st.floats(0.01, 0.95),
    mean=st.floats(1, 100),
    seed=st.integers(0, 2**32),
)
def test_counts_are_exact_and_runs_alternate(length: int, density: float, mean: float, seed: int):
    noise, spans = span_counts(length, noise_density=density, mean_span_length=mean)
    mask = random_spans(length, generator(seed), noise_density=density, mean_span_length=mean)
    assert mask.dtype == np.bool_
    assert len(mask) == length
    if length < 2:
        assert not mask.any()
        return
    assert 1 <= spans <= noise < length
    assert mask.sum() == noise
    assert (np.diff(mask.astype(int)) == 1).sum() == spans
    assert not mask[0]
    assert mask[-1]


@hypothesis.given(total=st.integers(1, 600), data=st.data())
def test_parts_are_positive_and_add_up(total: int, data: st.DataObject):
    parts = data.draw(st.integers(1, total))
    split = random_parts(total, parts, generator(data.draw(st.integers(0, 2**32))))
    assert len(split) == parts
    assert split.min() >= 1
    assert split.sum() == total

"""Noise masks: exact counts, and distributions against their closed forms."""

from __future__ import annotations

import itertools
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.objectives.noise.noise_masks import (
    FragmentNoise,
    IidNoise,
    SuffixNoise,
    mask_of_spans,
    random_cuts,
    random_span_starts,
    span_counts,
)
from tests.objectives.binomial import assert_mean_within_5_sigma, assert_within_5_sigma

RAW, NOISE, SPANS = 568, 85, 28
DRAWS = 20_000
DENSITY = {"noise_density": 0.15, "mean_span_length": 3.0}


def random_spans(length: int, rng: np.random.Generator, **shape: float) -> np.ndarray:
    return mask_of_spans(length, *random_span_starts(length, rng, **shape))


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def random_parts(total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    return np.diff(random_cuts(total, parts, rng))


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


def test_iid_noise_has_binomial_counts_and_geometric_runs():
    rng, p, n, draws = generator(4), 0.15, 511, 10_000
    masks = np.array([IidNoise(p)(n, rng) for _ in range(draws)])
    assert_within_5_sigma(masks.sum(axis=0), np.full(n, p), draws)
    counts = masks.sum(axis=1)
    assert_mean_within_5_sigma(counts, n * p, math.sqrt(n * p * (1 - p)))
    assert_mean_within_5_sigma((counts - n * p) ** 2, n * p * (1 - p), 1.5 * n * p * (1 - p))
    # A run starts where noise follows clean: never at two places next to each other.
    runs = masks[:, 0] + (masks[:, 1:] & ~masks[:, :-1]).sum(axis=1)
    start = p * (1 - p)
    assert_mean_within_5_sigma(
        runs, p + (n - 1) * start, math.sqrt(n * (start * (1 - start) - 2 * start**2)) + 1
    )
    assert IidNoise(1.0)(50, rng).all()


@pytest.mark.parametrize(("density", "shortest"), [(0.5, 1), (0.25, 50), (0.1, 80)])
def test_a_suffix_starts_uniformly(density: float, shortest: int):
    rng, n, draws = generator(5), 101, 20_000
    masks = np.array([SuffixNoise(density)(n, rng) for _ in range(draws)])
    prefixes = n - masks.sum(axis=1)
    assert all(not mask[:prefix].any() for mask, prefix in zip(masks, prefixes, strict=True))
    expected = np.zeros(n)
    expected[shortest:] = 1 / (n - shortest)
    assert_within_5_sigma(np.bincount(prefixes, minlength=n), expected, draws)


@pytest.mark.parametrize(("density", "size"), [(0.5, 32), (0.15, 9), (1.0, 63), (0.001, 1)])
def test_a_fragment_is_anywhere_but_at_the_start(density: float, size: int):
    rng, n, draws = generator(6), 64, 10_000
    masks = np.array([FragmentNoise(density)(n, rng) for _ in range(draws)])
    assert (masks.sum(axis=1) == size).all()
    starts = masks.argmax(axis=1)
    assert all(mask[i : i + size].all() for mask, i in zip(masks, starts, strict=True))
    places = n - size
    expected = np.zeros(n)
    expected[1 : places + 1] = 1 / places
    assert_within_5_sigma(np.bincount(starts, minlength=n), expected, draws)


@pytest.mark.parametrize(
    ("noise", "of_none", "of_one", "of_two"),
    [
        (IidNoise(1.0), [], [True], [True, True]),
        (SuffixNoise(0.5), [], [True], [False, True]),
        (FragmentNoise(0.5), [], [False], [False, True]),
    ],
)
def test_the_shortest_masks(noise, of_none: list, of_one: list, of_two: list):
    for n, expected in enumerate((of_none, of_one, of_two)):
        mask = noise(n, generator(n))
        assert mask.dtype == np.bool_
        assert mask.tolist() == expected


@pytest.mark.parametrize("noise", [IidNoise, SuffixNoise, FragmentNoise])
def test_densities_out_of_range(noise):
    for density in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=f"{noise.__name__}: density"):
            noise(density)
    assert repr(IidNoise(1)) == "IidNoise(density=1.0)"
    with pytest.raises(ValueError, match=r"at most 0\.5"):
        SuffixNoise(0.6)

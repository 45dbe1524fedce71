"""Corruptions under a mask: what they keep, what they draw, that nothing else changes."""

from __future__ import annotations

import collections
import itertools
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.noise.corruptions import (
    CleanTokens,
    CleanToSentinels,
    MaskNoise,
    NoiseTokens,
    NoiseToSentinels,
    Original,
    ShuffleNoise,
    ordinary_ids,
)
from tests.objectives.binomial import assert_within_5_sigma

T5 = TokenIds(vocab_size=32100)
SCATTERED = TokenIds(
    vocab_size=12, pad=1, eos=5, unk=None, bos=0, mask=11, named={"[R]": 6, "[S]": 7}
)
masks = st.lists(st.booleans(), max_size=60).map(lambda mask: np.array(mask, np.bool_))


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


@hypothesis.given(mask=masks, seed=st.integers(0, 99))
def test_noise_goes_and_the_rest_stays(mask: np.ndarray, seed: int):
    tokens = np.arange(100, 100 + len(mask), dtype=np.int32)
    before = mask.copy()

    def made(corruption) -> np.ndarray:
        result = corruption(tokens, mask, generator(seed), T5)
        assert result.dtype == np.int32
        assert len(result) <= len(tokens)
        return result

    noise = tokens[mask].tolist()
    clean = tokens[~mask].tolist()
    assert made(Original()).tolist() == tokens.tolist()
    assert made(NoiseTokens()).tolist() == noise
    assert made(CleanTokens()).tolist() == clean
    assert [t for t in made(NoiseToSentinels()).tolist() if t < 30000] == clean
    assert [t for t in made(CleanToSentinels()).tolist() if t < 30000] == noise
    assert made(MaskNoise())[mask].tolist() == [32099] * len(noise)
    for same_length in (MaskNoise(), MaskNoise(0.1), MaskNoise(0.5, 0.5), ShuffleNoise()):
        assert made(same_length)[~mask].tolist() == clean
    assert sorted(made(ShuffleNoise())[mask].tolist()) == noise
    assert made(MaskNoise(kept=1.0)).tolist() == tokens.tolist()
    assert np.array_equal(mask, before)
    assert np.array_equal(tokens, np.arange(100, 100 + len(mask)))


def test_ordinary_ids_are_all_but_the_special_ones():
    draws = 20_000
    counts = np.bincount(ordinary_ids(draws, generator(), SCATTERED), minlength=12)
    ordinary = [2, 3, 4, 8, 9, 10]
    expected = np.zeros(12)
    expected[ordinary] = 1 / len(ordinary)
    assert_within_5_sigma(counts, expected, draws)
    of_t5 = ordinary_ids(400_000, generator(1), T5)
    assert (of_t5.min(), of_t5.max()) == (3, 32099)
    assert_within_5_sigma(np.array([(of_t5 >= 32000).sum()]), np.array([100 / 32097]), len(of_t5))


@pytest.mark.parametrize(
    ("random", "kept"), [(0.1, 0.0), (0.1, 0.1), (0.0, 0.3), (0.5, 0.5), (0.0, 0.0)]
)
def test_shares_of_masked_random_and_kept_tokens(random: float, kept: float):
    tokens = np.full(20_000, 4, np.int32)
    corrupted = MaskNoise(random, kept)(tokens, tokens > 0, generator(2), SCATTERED)
    expected = np.zeros(12)
    expected[[2, 3, 4, 8, 9, 10]] = random / 6
    expected[4] += kept
    expected[11] += 1 - random - kept  # the top id is sentinel 0
    assert_within_5_sigma(np.bincount(corrupted, minlength=12), expected, len(tokens))


def test_random_tokens_of_bert_style_fall_anywhere():
    # Each is decided upon by itself: pairs of neighbours are as frequent as the product says.
    tokens = np.full(40_000, 4, np.int32)
    masked = MaskNoise(0.1)(tokens, tokens > 0, generator(3), T5) == 32099
    p = 0.9 + 0.1 / 32097
    pairs = masked[::2] & masked[1::2]
    assert_within_5_sigma(np.array([pairs.sum()]), np.array([p * p]), len(pairs))


def test_every_order_of_shuffled_tokens_is_as_likely():
    rng, draws = generator(4), 12_000
    tokens = np.array([10, 11, 12, 13], np.int32)
    mask = np.array([True, False, True, True])
    orders = collections.Counter(
        tuple(ShuffleNoise()(tokens, mask, rng, T5).tolist()) for _ in range(draws)
    )
    expected = [(a, 11, b, c) for a, b, c in itertools.permutations([10, 12, 13])]
    assert set(orders) == set(expected)
    assert_within_5_sigma(np.array([orders[o] for o in expected]), np.full(6, 1 / 6), draws)


def test_a_shuffled_text_keeps_one_token_in_place_on_average():
    rng, draws, tokens = generator(5), 5000, np.arange(200, dtype=np.int32)
    everything = np.ones(200, np.bool_)
    fixed = [(ShuffleNoise()(tokens, everything, rng, T5) == tokens).sum() for _ in range(draws)]
    assert abs(np.mean(fixed) - 1) < 5 / math.sqrt(draws)


@pytest.mark.parametrize("fields", [(-0.1, 0.0), (0.0, 1.1), (0.6, 0.6), (float("nan"), 0.0)])
def test_probabilities_out_of_range(fields: tuple[float, float]):
    with pytest.raises(ValueError, match="MaskNoise: "):
        MaskNoise(*fields)

"""Token masking and deletion: how many tokens, which ones, and what comes in their place."""

from __future__ import annotations

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.noise.token_noise import TokenDeletion, TokenMasking, mask_or_random

MASK = 5
IDS = TokenIds(vocab_size=1000, mask=MASK)
shares = st.one_of(st.sampled_from([0.0, 0.15, 0.3, 1.0]), st.floats(0, 1))


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def text(length: int) -> np.ndarray:
    """Tokens that all differ, none of them special."""
    return np.arange(10, 10 + length, dtype=np.int32)


@hypothesis.given(n=st.integers(0, 600), rate=shares, seed=st.integers(0, 2**32))
@hypothesis.example(n=0, rate=0.15, seed=0)
@hypothesis.example(n=1, rate=0.15, seed=0)
def test_the_share_is_rounded_up_and_the_rest_stays(n: int, rate: float, seed: int):
    tokens = text(n)
    masked = TokenMasking(rate)(tokens, generator(seed), IDS)
    left = TokenDeletion(rate)(tokens, generator(seed), IDS)
    assert masked.dtype == left.dtype == np.int32
    assert np.array_equal(tokens, text(n))
    assert len(masked) == n
    assert (masked == MASK).sum() == n - len(left) == math.ceil(n * rate)
    assert np.array_equal(masked[masked != MASK], tokens[masked != MASK])
    assert set(left.tolist()) <= set(tokens.tolist())
    assert (np.diff(left) > 0).all()


@pytest.mark.parametrize(("n", "count"), [(1, 1), (6, 1), (7, 2), (20, 3), (512, 77)])
def test_counts_at_the_usual_rate(n: int, count: int):
    assert (TokenMasking()(text(n), generator(0), IDS) == MASK).sum() == count
    assert len(TokenDeletion()(text(n), generator(0), IDS)) == n - count


@pytest.mark.parametrize("noise", [TokenMasking(), TokenDeletion()])
def test_every_token_is_as_likely_and_pairs_are_too(noise: TokenMasking | TokenDeletion):
    n, draws, rng, tokens = 20, 4000, generator(1), text(20)
    gone = np.array([~np.isin(tokens, noise(tokens, rng, IDS)) for _ in range(draws)])
    p = 3 / n
    assert np.abs(gone.mean(0) - p).max() <= 5 * math.sqrt(p * (1 - p) / draws)
    # Without replacement: two given tokens are both gone in 3 * 2 of 20 * 19 cases.
    pairs = (gone[:, :-1] & gone[:, 1:]).mean(0)
    p = 3 * 2 / (n * (n - 1))
    assert np.abs(pairs - p).max() <= 5 * math.sqrt(p * (1 - p) / draws)


def test_random_ids_in_place_of_masks():
    draws = 40_000
    masks = mask_or_random(draws, generator(2), IDS, 0.1)
    # A random id may be the mask, too.
    p = 0.1 * (1 - 1 / 999)
    random = masks[masks != MASK]
    assert abs(len(random) - draws * p) <= 5 * math.sqrt(draws * p * (1 - p))
    assert random.min() >= 1
    assert random.max() < 1000
    mean, deviation = 1000 / 2, 999 / math.sqrt(12)
    assert abs(random.mean() - mean) <= 5 * deviation / math.sqrt(len(random)) + 1
    assert (mask_or_random(50, generator(2), IDS, 0.0) == MASK).all()
    noisy = TokenMasking(1.0, mask_random=1.0)(text(500), generator(2), IDS)
    assert len(set(noisy.tolist())) > 300


def test_draws_depend_on_the_generator_alone():
    for noise in (TokenMasking(mask_random=0.5), TokenDeletion()):
        one, again, other = (noise(text(100), generator(seed), IDS).tolist() for seed in (1, 1, 2))
        assert one == again != other


def test_fields_are_checked_and_made_floats():
    assert repr(TokenMasking(1, mask_random=0)) == "TokenMasking(rate=1.0, mask_random=0.0)"
    assert repr(TokenDeletion(0)) == "TokenDeletion(rate=0.0)"
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="TokenDeletion: rate is between 0 and 1"):
            TokenDeletion(wrong)
        with pytest.raises(ValueError, match="TokenMasking: mask_random is between"):
            TokenMasking(mask_random=wrong)

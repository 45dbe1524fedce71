"""Special tokens around text, budgets, and what becomes of masked positions."""

from __future__ import annotations

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.objectives.noise import masking
from tests.objectives.masked_examples import BERT, SEEDS, VOCAB, generator
from tests.objectives.sentences import sigmas


@pytest.mark.parametrize(
    ("tokens", "predictions"), [(128, 19), (512, 77), (10, 2), (30, 4), (2, 1), (3, 1)]
)
def test_published_budgets(tokens: int, predictions: int):
    assert masking.budget(tokens, 0.15) == predictions


def test_one_segment():
    inputs, types = masking.with_specials(BERT, np.array([30, 31]))
    assert inputs.tolist() == [11, 30, 31, 12]
    assert types.tolist() == [0, 0, 0, 0]
    assert inputs.dtype == types.dtype == np.int32
    without_text, _ = masking.with_specials(BERT, np.array([], np.int32), np.array([], np.int32))
    assert without_text.tolist() == [11, 12]


def test_two_segments():
    inputs, types = masking.with_specials(BERT, np.array([30, 31]), np.array([40]))
    assert inputs.tolist() == [11, 30, 31, 12, 40, 12]
    assert types.tolist() == [0, 0, 0, 0, 1, 1]


def test_room_for_text():
    assert masking.text_room({"inputs": 512}, 3) == 509
    assert masking.text_room({"inputs": 4, "other": 9}, 3) == 1
    with pytest.raises(ValueError, match="set the inputs length to 4 or more"):
        masking.text_room({"inputs": 3}, 3)
    assert masking.text_room({"inputs": 5}, 3, texts=2) == 2
    with pytest.raises(ValueError, match=r"text in 2 segments.* inputs length to 5 or more"):
        masking.text_room({"inputs": 4}, 3, texts=2)
    with pytest.raises(ValueError, match="needs the length of inputs"):
        masking.text_room({"targets": 512}, 3)


def test_fates_of_masked_positions():
    tokens = np.full(100_000, 30, np.int32)
    positions = np.arange(0, 100_000, 2)
    noisy = masking.masked_copy(tokens, positions, generator(), BERT)
    assert (tokens == 30).all()
    assert (noisy[1::2] == 30).all()
    counts = np.bincount(noisy[::2], minlength=VOCAB)
    # Random ids come from the whole vocabulary, so that some are [MASK] or the token itself.
    shares = np.full(VOCAB, 0.1 / VOCAB)
    shares[BERT.mask] += 0.8
    shares[30] += 0.1
    assert all(sigmas(n, 50_000, p) < 5 for n, p in zip(counts, shares, strict=True))


def test_other_shares_and_random_ids():
    tokens = np.full(10_000, 30, np.int32)
    noisy = masking.masked_copy(
        tokens,
        np.arange(10_000),
        generator(),
        BERT,
        mask=0.0,
        random=0.25,
        random_from=lambda rng, ids, size: np.full(size, 40),
    )
    assert set(noisy.tolist()) == {30, 40}
    assert sigmas((noisy == 40).sum(), 10_000, 0.25) < 5


def test_draws_decide():
    tokens = np.full(6, 30, np.int32)
    draws = np.array([0.0, 0.79, 0.8, 0.89, 0.9, 0.99])
    noisy = masking.masked_copy(
        tokens,
        np.arange(6),
        generator(),
        BERT,
        draws=draws,
        random_from=lambda rng, ids, size: np.arange(50, 50 + size),
    )
    assert noisy.tolist() == [13, 13, 50, 51, 30, 30]


def test_example_sorts_positions():
    original = np.array([11, 30, 31, 32, 12], np.int32)
    noisy = np.array([11, 13, 31, 13, 12], np.int32)
    features = masking.example(noisy, np.zeros(5, np.int32), original, np.array([3, 1]))
    assert features["masked_positions"].tolist() == [1, 3]
    assert features["masked_targets"].tolist() == [30, 32]
    assert features["masked_loss_weights"].tolist() == [1, 1]
    assert {name: str(value.dtype) for name, value in features.items()} == {
        "inputs": "int32",
        "token_type_ids": "int32",
        "masked_positions": "int32",
        "masked_targets": "int32",
        "masked_loss_weights": "float32",
    }


def test_words_that_do_not_fit_are_passed_over():
    sizes = np.array([3, 1, 4, 1, 2])
    assert masking.words_that_fit(np.array([0, 2, 4, 1, 3]), sizes, 6).tolist() == [0, 4, 1]
    assert masking.words_that_fit(np.array([2, 0]), sizes, 2).tolist() == []
    assert masking.words_that_fit(np.array([], np.int64), sizes, 2).tolist() == []


@hypothesis.given(sizes=st.lists(st.integers(1, 9), max_size=20), seed=SEEDS)
def test_covered_spans(sizes: list[int], seed: int):
    starts = np.cumsum([0, *sizes])[:-1].astype(np.int64)
    order = generator(seed).permutation(len(sizes))
    expected = [range(starts[i], starts[i] + sizes[i]) for i in order]
    covered = masking.span_positions(starts[order], np.array(sizes, np.int64)[order])
    assert covered.tolist() == list(itertools.chain.from_iterable(expected))

"""Sentence order: what is swapped, how often, and what it is called."""

from __future__ import annotations

import numpy as np
import pytest

from t5x_like.objectives.parts.sentence_order import in_random_order
from tests.objectives.binomial import assert_within_5_sigma
from tests.objectives.masked_examples import generator

A, B, NONE = np.array([5, 6]), np.array([7]), np.array([], np.int64)


def test_half_of_the_pairs_are_swapped_and_say_so():
    rng, draws, swapped = generator(1), 20_000, 0
    for _ in range(draws):
        first, second, label = in_random_order({"first": A, "second": B, "is_random": 0}, rng)
        assert (first is B, second is A) == (label == 1, label == 1)
        swapped += int(label)
    assert_within_5_sigma([swapped], [0.5], draws)
    assert label.dtype == np.int32
    assert label.shape == ()


@pytest.mark.parametrize(
    ("first", "second", "is_random", "expected"),
    [(A, B, 1, 1), (A, NONE, 0, 0), (NONE, B, 0, 0), (NONE, NONE, 0, 0), (A, NONE, 1, 1)],
)
def test_what_is_never_swapped(first, second, is_random, expected):
    sample = {"first": first, "second": second, "is_random": np.int32(is_random)}
    for seed in range(20):
        a, b, label = in_random_order(sample, generator(seed))
        assert (a is first, b is second, label) == (True, True, expected)

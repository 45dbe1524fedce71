"""Document rotation: every place as likely."""

from __future__ import annotations

import math
from collections import Counter

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.noise.document_rotation import DocumentRotation

IDS = TokenIds(vocab_size=100)


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


@pytest.mark.parametrize("probability", [1.0, 0.25])
def test_every_place_is_as_likely(probability: float):
    n, draws, rng = 5, 6000, generator(1)
    noise = DocumentRotation(probability)
    tokens = np.arange(10, 10 + n, dtype=np.int32)
    first = Counter(int(noise(tokens, rng, IDS)[0]) - 10 for _ in range(draws))
    for place in range(n):
        # n + 1 draws: the end of sequence is a place to begin, which changes nothing.
        p = probability / (n + 1)
        if place == 0:
            p = 1 - probability * (n - 1) / (n + 1)
        assert abs(first[place] - draws * p) <= 5 * math.sqrt(draws * p * (1 - p))


@hypothesis.given(tokens=st.lists(st.integers(0, 99), max_size=50), seed=st.integers(0, 2**32))
def test_a_rotation_and_nothing_else(tokens: list[int], seed: int):
    before = np.array(tokens, np.int32)
    after = DocumentRotation()(before, generator(seed), IDS)
    assert after.dtype == np.int32
    assert before.tolist() == tokens
    rotations = [tokens[k:] + tokens[:k] for k in range(len(tokens) + 1)]
    assert after.tolist() in rotations
    assert np.array_equal(after, DocumentRotation()(before, generator(seed), IDS))


def test_fields():
    assert repr(DocumentRotation(1)) == "DocumentRotation(probability=1.0)"
    with pytest.raises(ValueError, match="DocumentRotation: probability is between"):
        DocumentRotation(2)

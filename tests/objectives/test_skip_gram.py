"""Skip-gram's draws: which words stay, how far they see, and what is drawn beside them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.skip_gram import WordPairs

COUNTS = np.array([0, 500, 300, 6000, 2000, 1000, 600, 400])
IDS = TokenIds(vocab_size=8, pad=0, eos=1, unk=2, counts=COUNTS)
TEXT = {"targets": np.repeat(np.arange(8), 4000).astype(np.int32)}


def made(objective: WordPairs, seed: int = 0) -> dict[str, np.ndarray]:
    return objective(TEXT, np.random.default_rng(seed), IDS)


def test_frequent_words_stay_as_often_as_word2vec_says() -> None:
    found = made(WordPairs(sample=0.05))
    shares = COUNTS[3:] / COUNTS[3:].sum()
    expected = np.minimum(np.sqrt(0.05 / shares) + 0.05 / shares, 1)
    stayed = np.bincount(found["inputs"], minlength=8)
    np.testing.assert_array_equal(stayed[:3], 0)  # special ids
    np.testing.assert_allclose(stayed[3:] / 4000, expected, atol=0.03)
    assert len(made(WordPairs(sample=0.0))["inputs"]) == 5 * 4000


def test_every_reach_is_as_likely_and_words_are_drawn_by_their_counts() -> None:
    found = made(WordPairs(window=4, negatives=3, sample=0.0))
    reach = found["reach"]
    assert (np.diff(reach, axis=1) <= 0).all()
    np.testing.assert_allclose(
        np.bincount(reach.sum(axis=1), minlength=5)[1:] / 20_000, 0.25, atol=0.02
    )
    flattened = np.where(np.arange(8) > 2, COUNTS, 0) ** 0.75
    drawn = np.bincount(found["negatives"].ravel(), minlength=8) / 60_000
    np.testing.assert_allclose(drawn, flattened / flattened.sum(), atol=0.01)


def test_what_is_impossible_is_refused() -> None:
    for wrong in ({"window": 0}, {"negatives": 0}, {"sample": 1.0}):
        with pytest.raises(ValueError, match="WordPairs: a window"):
            WordPairs(**wrong)
    nothing = dataclasses.replace(IDS, counts=np.array([9, 9, 9, 0, 0, 0, 0, 0]))
    with pytest.raises(ValueError, match="has no words"):
        WordPairs()({"targets": np.array([1])}, np.random.default_rng(0), nothing)

"""A word's tokens have what the head says of the mean of their states."""

from __future__ import annotations

import numpy as np
from flax import nnx

from t5x_like.core.protocols.data import TokenIds
from t5x_like.layers.heads import word_means
from t5x_like.layers.heads.label_heads import TokenHead
from t5x_like.objectives.supervised.tags import Tags

IDS = TokenIds(99, pad=0, eos=None, unk=None, cls=1, sep=2)
STARTS = np.array([False, True, False, True, True, False, False])


def test_they_are_what_the_head_says_of_the_mean_of_states() -> None:
    states_BLD = np.random.default_rng(0).normal(size=(1, 9, 4)).astype(np.float32)
    head = TokenHead(4, 3, dtype=np.float32, rngs=nnx.Rngs(0))
    logits_BLC = head(states_BLD, np.zeros((1, 9)), np.ones((1, 9)))
    tags = np.where(STARTS, 1, -1)
    row = Tags(pieces="mean")({"words": np.arange(7), "tags": tags}, np.random.default_rng(0), IDS)
    assert row["word_ids"].tolist() == [0, 0, 1, 1, 2, 3, 3, 3, 0]
    means_BLC = np.asarray(word_means.of_words(logits_BLC, row["word_ids"][None]))
    for word in (1, 2, 3):
        of_word_L = row["word_ids"] == word
        mean_BLD = states_BLD[:, of_word_L].mean(axis=1, keepdims=True)
        expected_BLC = np.asarray(head(mean_BLD, np.zeros((1, 1)), np.ones((1, 1))))
        np.testing.assert_allclose(means_BLC[:, of_word_L].mean(axis=1), expected_BLC[0], atol=1e-6)
        assert np.ptp(means_BLC[:, of_word_L], axis=1).max() == 0
    no_word_L = row["word_ids"] == 0
    np.testing.assert_array_equal(means_BLC[:, no_word_L], np.asarray(logits_BLC)[:, no_word_L])

"""Draws by weights, by a corpus, and the tables they keep for a vocabulary."""

from __future__ import annotations

import bisect
import dataclasses

import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.objectives.parts import derived
from t5x_like.objectives.parts.drawing import corpus_tokens, thresholds
from tests.objectives.binomial import assert_within_5_sigma
from tests.objectives.masked_examples import generator
from tests.objectives.texts import IDS, SIZE, vocabulary

DRAWS = 100_000


def test_thresholds_cut_the_unit_interval_by_the_weights():
    assert thresholds([1, 1 / 2, 1 / 3]) == pytest.approx((6 / 11, 9 / 11))
    assert thresholds([5.0]) == ()
    # An index never passes the last weight, however close to 1 the number is.
    assert bisect.bisect(thresholds([0.1] * 10), np.nextafter(1, 0)) == 9


def test_tokens_come_as_often_as_in_the_corpus():
    counts = np.zeros(SIZE, np.int64)
    counts[[7, 20, 21, SIZE - 1]] = [1, 0, 5, 14]
    drawn = corpus_tokens(generator(1), vocabulary(counts=counts), DRAWS)
    assert_within_5_sigma(np.bincount(drawn, minlength=SIZE), counts / 20, DRAWS)


def test_a_corpus_must_have_been_counted():
    for counts in (None, np.zeros(SIZE, np.int64)):
        with pytest.raises(ValueError, match="without such counts"):
            corpus_tokens(generator(1), dataclasses.replace(IDS, counts=counts), 3)


def test_a_table_is_made_once_for_an_object_and_few_are_kept():
    made = []

    @derived.once_per_vocabulary
    def size(ids: TokenIds) -> int:
        """Its size."""
        made.append(ids)
        return ids.vocab_size

    vocabularies = [TokenIds(vocab_size=n) for n in range(derived.KEPT + 1)]
    for _ in range(2):
        assert size(vocabularies[3]) == 3
    assert len(made) == 1
    # Equal vocabularies may differ in their arrays, which are not compared.
    assert size(TokenIds(vocab_size=3)) == 3
    assert len(made) == 2
    assert [size(ids) for ids in vocabularies] == list(range(derived.KEPT + 1))
    assert size.__doc__ == "Its size."

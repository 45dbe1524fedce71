"""Rows of like length share batches, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_like.data.samples.order import EqualEpochs, OwnRows
from t5x_like.data.streams.by_length import ByLength


def of(samples: int, batch_size: int, *, seed: int = 0) -> ByLength:
    tokens = np.random.default_rng(7).geometric(0.04, samples).clip(2, 128)
    rows = OwnRows(0, EqualEpochs(samples), seed)
    return ByLength(rows, tokens, batch_size, seed, most=128)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 700), st.integers(1, 9), st.integers(0, 3))
def test_every_row_is_read_once_in_each_epoch(samples: int, batch_size: int, epoch: int) -> None:
    order = of(samples, batch_size)
    begin, end = epoch * samples, (epoch + 1) * samples
    read = [order[row][1] for row in range(begin, end)]
    assert sorted(read) == [*range(begin, end)]


def test_a_row_depends_on_its_number_alone() -> None:
    order, again, other = of(500, 8), of(500, 8), of(500, 8, seed=1)
    straight = [again[row] for row in range(1200)]
    rows = np.random.default_rng(0).permutation(1200).tolist()
    assert [order[row] for row in rows] == [straight[row] for row in rows]
    assert straight != [other[row] for row in range(1200)]


@pytest.mark.parametrize("epoch", [0, 1])
def test_batches_are_as_long_as_their_longest_row_and_little_is_padding(epoch: int) -> None:
    order, size = of(6400, 32), 32
    steps = range(200 * epoch, 200 * (epoch + 1))
    padded = 0
    for step in steps:
        tokens = [order.tokens[order[step * size + n][1] % 6400] for n in range(size)]
        length = order.length(step)
        assert length in (16, 32, 64, 128)
        assert max(tokens) <= length < 2 * max(16, max(tokens))
        padded += length * size
    as_they_are = len(steps) * size * 128
    assert order.tokens.sum() / padded > 0.6 > 3 * order.tokens.sum() / as_they_are
    lengths = [order.length(step) for step in steps]
    assert lengths != sorted(lengths)

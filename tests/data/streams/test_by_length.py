"""Rows of like length share batches, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_like.data.samples.order import EqualEpochs, OwnRows, Part
from t5x_like.data.samples.order import order as order_of
from t5x_like.data.streams.by_length import ByLength


def of(samples: int, batch_size: int, *, seed: int = 0) -> ByLength:
    tokens = np.random.default_rng(7).geometric(0.04, samples).clip(2, 128)
    rows = OwnRows(0, EqualEpochs(samples), seed)
    return ByLength(rows, [rows.epochs], [tokens], batch_size, seed, most=128)


def of_two(sizes: tuple[int, int], batch_size: int, *, seed: int = 0) -> ByLength:
    """The rows of two texts, of which the first has three rows for one of the second."""
    draw = np.random.default_rng(7)
    tokens = [
        draw.geometric(p, size).clip(2, 128) for p, size in zip((0.1, 0.03), sizes, strict=True)
    ]
    epochs = [EqualEpochs(size) for size in sizes]
    parts = [Part(f"text {n}", of, 3 - 2 * n, None) for n, of in enumerate(epochs)]
    mixed = order_of(parts, batch_size=batch_size, seed=seed, shuffle=True)
    return ByLength(mixed, epochs, tokens, batch_size, seed, most=128)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 9), st.integers(0, 300))
def test_batches_of_a_mixture_have_its_rows_and_group_them(
    first: int, second: int, batch_size: int, step: int
) -> None:
    mixture = of_two((first, second), batch_size)
    group = 64 * batch_size
    begin = step // 64 * group
    read = [mixture[row] for row in range(begin, begin + group)]
    assert sorted(read) == sorted(mixture.rows[row] for row in range(begin, begin + group))
    rows = range(step * batch_size, (step + 1) * batch_size)
    texts, numbers = zip(*(mixture[row] for row in rows), strict=True)
    sizes = (first, second)
    longest = max(mixture.tokens[k][n % sizes[k]] for k, n in zip(texts, numbers, strict=True))
    assert longest <= mixture.length(step) < 2 * max(16, longest)


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
        tokens = [order.tokens[0][order[step * size + n][1] % 6400] for n in range(size)]
        length = order.length(step)
        assert length in (16, 32, 64, 128)
        assert max(tokens) <= length < 2 * max(16, max(tokens))
        padded += length * size
    as_they_are = len(steps) * size * 128
    assert order.tokens[0].sum() / padded > 0.6 > 3 * order.tokens[0].sum() / as_they_are
    lengths = [order.length(step) for step in steps]
    assert lengths != sorted(lengths)

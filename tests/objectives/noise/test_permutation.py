"""Visibility in permutation language modelling: against the masks it stands for, pair by pair."""

from __future__ import annotations

import itertools
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.objectives.noise.permutation import local_order, visibility


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


class InOrder:
    """A generator whose permutations are all the identity."""

    def permutation(self, n: int) -> np.ndarray:
        return np.arange(n)


def blocked_in_part(masked: list[bool], functional: set[int], order: list[int]) -> np.ndarray:
    """The quadratic mask of one part: [i, j] is True where i may not see j."""
    n = len(masked)
    rank = [order[j] if masked[j] or j in functional else -1 for j in range(n)]
    threshold = [rank[i] if masked[i] and i not in functional else rank[i] + 1 for i in range(n)]
    return np.array(
        [
            [threshold[i] <= rank[j] and (masked[j] or j in functional) for j in range(n)]
            for i in range(n)
        ],
        bool,
    ).reshape(n, n)


def blocked(
    masked: list[bool], functional: set[int], orders: tuple[list[int], list[int]]
) -> np.ndarray:
    """The quadratic mask of the sequence, whose second part sees all of the first."""
    n, split = len(masked), len(orders[0])
    mask = np.zeros((n, n), bool)
    mask[:split, :split] = blocked_in_part(
        masked[:split], {i for i in functional if i < split}, orders[0]
    )
    mask[split:, split:] = blocked_in_part(
        masked[split:], {i - split for i in functional if i >= split}, orders[1]
    )
    mask[:split, split:] = True
    return mask


def order_of(size: int, block: int | None, rng: np.random.Generator) -> list[int]:
    """One shuffle for every block of the part."""
    block = size if block is None else max(1, min(block, size))
    shuffled = rng.permutation(block)
    return [int(i - i % block + shuffled[i % block]) for i in range(size)]


def told(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    return query[:, None] <= key[None, :]


@hypothesis.given(
    kinds=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=48),
    split=st.integers(0, 48),
    block=st.none() | st.integers(1, 30),
    seed=st.integers(0, 2**32),
)
def test_orders_tell_the_quadratic_mask(
    kinds: list[tuple[bool, bool]], split: int, block: int | None, seed: int
):
    n = len(kinds)
    split = min(split, n)
    masked = np.array([one for one, _ in kinds], bool)
    functional = [i for i, (_, one) in enumerate(kinds) if one]
    query, key = visibility(masked, functional, split=split, block=block, rng=generator(seed))
    assert (query.dtype, key.dtype) == (np.int32, np.int32)
    rng = generator(seed)
    orders = order_of(split, block, rng), order_of(n - split, block, rng)
    expected = blocked(masked.tolist(), set(functional), orders)
    assert np.array_equal(told(query, key), expected)


def test_orders_tell_the_quadratic_mask_at_published_size():
    for seed, block in itertools.product(range(3), (256, 128, None)):
        masked = generator(seed + 100).random(512) < 1 / 6
        functional = [380, 510, 511]
        query, key = visibility(masked, functional, split=256, block=block, rng=generator(seed))
        rng = generator(seed)
        orders = order_of(256, block, rng), order_of(256, block, rng)
        expected = blocked(masked.tolist(), set(functional), orders)
        assert np.array_equal(told(query, key), expected)


def test_in_order_with_all_tokens_masked_it_is_a_left_to_right_model():
    everything = np.ones(12, bool)
    query, key = visibility(everything, [], split=12, block=None, rng=InOrder())
    assert np.array_equal(told(query, key), ~np.tri(12, k=-1, dtype=bool))
    # In two parts as well, since the second sees all of the first.
    query, key = visibility(everything, [], split=5, block=None, rng=InOrder())
    assert np.array_equal(told(query, key), ~np.tri(12, k=-1, dtype=bool))


def test_who_sees_whom():
    masked = np.zeros(10, bool)
    masked[[1, 3, 6, 9]] = True
    query, key = visibility(masked, [8, 9], split=5, block=None, rng=InOrder())
    seen = [[j for j in range(10) if query[i] > key[j]] for i in range(10)]
    first, plain = [0, 1, 2, 3, 4], [5, 7]
    assert seen[0] == seen[2] == seen[4] == seen[1] == [0, 2, 4]
    assert seen[3] == [0, 1, 2, 4]
    assert seen[5] == seen[6] == seen[7] == [*first, *plain]
    # Functional tokens see themselves, masked or not.
    assert seen[8] == [*first, 5, 6, 7, 8]
    assert seen[9] == [*first, 5, 6, 7, 8, 9]


def test_of_two_targets_one_sees_the_other():
    """Each with probability 1/2, so that a target sees (k - 1) / 2 of the k in its part."""
    draws, targets = 4000, np.array([3, 4, 20, 31])
    masked = np.zeros(64, bool)
    masked[targets] = True
    rng, before, ranks = generator(1), np.zeros((4, 4), int), np.zeros((4, 4), int)
    for _ in range(draws):
        query, key = visibility(masked, [62, 63], split=32, block=None, rng=rng)
        sees = query[targets][:, None] > key[targets][None, :]
        assert np.array_equal(sees ^ sees.T, ~np.eye(4, dtype=bool))
        before += sees
        ranks[np.arange(4), sees.sum(axis=1)] += 1
    pairs = before[~np.eye(4, dtype=bool)]
    assert np.abs(pairs - draws / 2).max() < 5 * math.sqrt(draws / 4)
    # How many of the other three one sees is uniform on 0 .. 3.
    assert np.abs(ranks - draws / 4).max() < 5 * math.sqrt(draws * 3 / 16)


def test_targets_of_later_blocks_see_those_of_earlier_ones():
    masked = np.ones(32, bool)
    for seed in range(20):
        query, key = visibility(masked, [], split=16, block=4, rng=generator(seed))
        sees = query[:, None] > key[None, :]
        for part in (0, 16):
            inside = sees[part : part + 16, part : part + 16].reshape(4, 4, 4, 4)
            for a, b in itertools.permutations(range(4), 2):
                assert inside[a, :, b].all() == (a > b)
                assert inside[a, :, b].any() == (a > b)
            assert all(np.array_equal(inside[a, :, a], inside[0, :, 0]) for a in range(4))


@pytest.mark.parametrize(("length", "block"), [(256, 256), (256, 64), (10, 4), (1, 1), (0, 1)])
def test_local_order_permutes_inside_blocks(length: int, block: int):
    order = local_order(length, block, generator(0))
    assert len(set(order.tolist())) == length
    assert np.array_equal(order // block, np.arange(length) // block)


def test_every_local_order_is_as_likely():
    rng, draws = generator(2), 6000
    counts = dict.fromkeys(itertools.permutations(range(3)), 0)
    for _ in range(draws):
        first, second = local_order(6, 3, rng).reshape(2, 3)
        assert np.array_equal(first + 3, second)
        counts[tuple(first.tolist())] += 1
    assert all(abs(n - draws / 6) < 5 * math.sqrt(draws * 5 / 36) for n in counts.values())

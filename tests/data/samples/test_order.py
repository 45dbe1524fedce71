"""The example of each row: exact shares, whole epochs, carried rows, and a fixed order."""

from __future__ import annotations

from collections import Counter

import grain
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.data.samples import order
from t5x_like.data.samples.order import EqualEpochs, Part, shares, spread


def parts(*weights: int, size: int = 5, rows: list[int] | None = None) -> list[Part]:
    own = rows or [None] * len(weights)
    return [Part("abc"[k], EqualEpochs(size + k), weights[k], own[k]) for k in range(len(weights))]


def rows_of(count: int, mixed: list[Part], **options) -> list[tuple[int, int]]:
    ordered = order.order(mixed, **({"batch_size": 1, "seed": 0, "shuffle": True} | options))
    return [ordered[row] for row in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("weights", [(3, 2), (1, 99), (1, 2, 4), (7, 7), (200, 1)])
def test_mixture_has_exactly_its_weights(weights):
    total = sum(weights)
    found = [component for component, _ in rows_of(2 * total, parts(*weights))]
    for period in (found[:total], found[total:]):
        assert Counter(period) == dict(enumerate(weights))


def test_each_component_is_read_in_epochs():
    size, epochs = 24, 3
    numbers = [n for _, n in rows_of(size * epochs, parts(1, size=size))]
    for epoch in range(epochs):
        in_epoch = numbers[epoch * size : (epoch + 1) * size]
        assert sorted(in_epoch) == list(range(epoch * size, (epoch + 1) * size))
    orders = [tuple(n % size for n in numbers[e * size : (e + 1) * size]) for e in range(epochs)]
    assert len(set(orders)) == epochs
    plain = rows_of(size * epochs, parts(1, size=size), shuffle=False)
    assert plain == [(0, n) for n in range(size * epochs)]


def test_order_of_a_seed_is_fixed():
    # Later versions of this code and of Grain resume runs.
    assert [order._seed(0, name) for name in ("a", "b")] == [2598482685, 4059100481]
    rows = rows_of(16, [Part("task", EqualEpochs(8), 1, None)], seed=3)
    assert "".join("abcdefgh"[n % 8] for _, n in rows) == "cdbfehgaefdcgbah"


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("weights", [(1,), (3, 2), (1, 4, 2)])
def test_order_is_what_grain_makes_of_its_shuffled_and_mixed_datasets(weights, shuffle):
    mixed = parts(*weights, size=11)
    datasets = []
    for k, part in enumerate(mixed):
        numbered = grain.MapDataset.range(part.epochs.size).map_with_index(lambda n, _, k=k: (k, n))
        if shuffle:
            numbered = numbered.shuffle(seed=order._seed(0, part.name))
        datasets.append(numbered.repeat())
    expected = grain.MapDataset.mix(datasets, weights=weights)
    assert rows_of(200, mixed, shuffle=shuffle) == [expected[row] for row in range(200)]


def test_seeds_of_neighbours_share_no_epoch():
    """Grain's shuffle adds the epoch to its seed: seed 0, epoch 1 must not be seed 1, epoch 0."""
    first, second = (
        [n % 40 for _, n in rows_of(80, parts(1, size=40), seed=seed)] for seed in (0, 1)
    )
    assert first[40:] != second[:40]


@given(
    rows=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    step=st.integers(0, 10**6),
    data=st.data(),
)
def test_carried_rows_go_on_in_their_place(rows, step, data):
    batch = sum(rows)
    ordered = order.order(
        parts(*[1] * len(rows), rows=rows), batch_size=batch, seed=0, shuffle=True
    )
    row = data.draw(st.integers(0, batch - 1))
    component, n = ordered[step * batch + row]
    first = sum(rows[:component])
    assert first <= row < first + rows[component]
    assert n == step * rows[component] + row - first
    assert ordered[(step + 1) * batch + row] == (component, n + rows[component])


def test_carried_rows_that_make_no_batch_are_errors():
    options = {"batch_size": 6, "seed": 0, "shuffle": True}
    with pytest.raises(ValueError, match="planned for batches of 5, not of 6"):
        order.order(parts(1, 1, rows=[2, 3]), **options)
    with pytest.raises(ValueError, match=r"beside others \(b\).*all of them"):
        order.order(parts(1, 1, rows=[6, None]), **options)
    with pytest.raises(ValueError, match="weights of at least 1"):
        order.order(parts(1, 0), **options)


@given(
    weights=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    extra=st.integers(0, 40),
    multiple=st.integers(1, 3),
)
def test_shares_add_up_with_one_at_least(weights, extra, multiple):
    rows = (len(weights) + extra) * multiple
    found = shares(weights, rows, multiple=multiple)
    assert sum(found) == rows
    assert min(found) >= multiple
    assert all(share % multiple == 0 for share in found)
    pairs = sorted(zip(weights, found, strict=True))
    assert [n for _, n in pairs] == sorted(found), "a larger weight never has fewer rows"


@given(weights=st.lists(st.integers(1, 9), min_size=1, max_size=5), scale=st.integers(1, 4))
def test_shares_that_can_be_exact_are(weights, scale):
    assert shares(weights, sum(weights) * scale) == [weight * scale for weight in weights]


def test_too_few_rows_are_an_error():
    with pytest.raises(ValueError, match=r"at least 3 rows.*not 2: rows of 3 tasks"):
        shares([1, 1, 1], 2)
    with pytest.raises(ValueError, match=r"a multiple of 2, not 7"):
        shares([1, 1, 1], 7, multiple=2)


@given(st.integers(0, 300), st.integers(0, 100))
def test_a_choice_is_spread_over_all(total, at_most):
    found = spread(total, at_most)
    assert [*spread(total)] == [*range(total)]
    assert len(found) == min(total, at_most) == len({*found})
    assert [*found] == sorted(found)
    assert all(0 <= n < total for n in found)
    gaps = [b - a for a, b in zip([-1, *found], [*found, total], strict=True)]
    assert not found or max(gaps) <= 2 * -(-total // len(found))


@pytest.mark.parametrize("period", [2, 3, 4, 5, 7, 10, 50])
@pytest.mark.parametrize("stretch", [2, 3, 4, 6, 10, 50, 52])
def test_a_choice_has_all_of_what_comes_in_turn(period, stretch):
    kinds = Counter(n % period for n in spread(500 * stretch, 500))
    assert len(kinds) == period
    assert max(kinds.values()) < 1.5 * 500 / period

"""Passes over a text: each planned when it is reached, an epoch of the order, the same anywhere."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from t5x_like.data.samples import order, plan_parts
from t5x_like.data.samples import samples as samples_module
from t5x_like.data.samples.memory_split import MemorySplit
from t5x_like.data.samples.order import Part
from t5x_like.data.samples.passes import epochs_of
from t5x_like.data.samples.plan_parts import PlanParts
from t5x_like.data.samples.samples import make_samples
from t5x_like.objectives.parts.carried_rows import CarriedRows
from t5x_like.objectives.parts.sentence_blocks import LineBlocks
from t5x_like.objectives.parts.sentence_pairs import SentencePairs

PASSES = 3


@pytest.fixture
def split(make_cache):
    texts = [f"line {i} of some\nand a further one\n" * (1 + i % 5) for i in range(40)]
    return make_cache(texts).split("train")


def contents(samples, numbers) -> list[tuple]:
    return [
        tuple((name, value.tolist()) for name, value in sorted(samples[i][0].items()))
        for i in numbers
    ]


def plans_of(split) -> int:
    return len(list(split.directory.glob("train.plan-*")))


def test_every_pass_is_the_text_with_its_own_draws(split):
    samples = make_samples(SentencePairs(60, passes=PASSES), split)
    sizes = [samples.epoch_of(0).size]
    while sum(sizes) < len(samples):
        sizes.append(samples.epoch_of(sum(sizes)).size)
    assert len(sizes) == PASSES
    ends = np.cumsum([0, *sizes]).tolist()
    passes = [contents(samples, range(*pair)) for pair in itertools.pairwise(ends)]
    assert len(set(map(repr, passes))) == PASSES
    # Another number of passes, one included, changes no pass.
    for other in (1, 2):
        fewer = make_samples(SentencePairs(60, passes=other), split)
        assert contents(fewer, range(len(fewer))) == [*itertools.chain(*passes[:other])]
    with pytest.raises(IndexError, match=f"no sample {sum(sizes)} among {sum(sizes)}"):
        samples[sum(sizes)]


def test_a_pass_is_planned_when_it_is_reached(split):
    samples = make_samples(SentencePairs(60, passes=PASSES), split)
    first = samples.epoch_of(0)
    before = plans_of(split)
    assert samples
    assert first[:2] == (0, 0)
    assert contents(samples, range(first.size))
    assert plans_of(split) == before
    assert samples.epoch_of(first.size)[:2] == (1, first.size)
    assert plans_of(split) == before + 1
    assert len(samples) > 2 * first.size
    assert plans_of(split) == before + PASSES - 1


@pytest.mark.parametrize("start", [0, 100, 1000])
def test_the_order_has_each_pass_as_an_epoch_wherever_it_begins(split, start):
    whole = make_samples(SentencePairs(60, passes=PASSES), split)
    total = len(whole)
    again = pickle.loads(pickle.dumps(whole))
    every, later = (
        order.order([Part("a", epochs_of(samples), 1, None)], batch_size=1, seed=3, shuffle=True)
        for samples in (whole, again)
    )
    count = 2 * total
    expected = [every[row][1] for row in range(count)]
    assert [later[row][1] for row in range(start, count)] == expected[start:]
    begin = 0
    while begin < count:
        epoch = whole.epoch_of(begin)
        own = expected[begin : begin + epoch.size]
        assert sorted(own) == list(range(begin, begin + epoch.size))
        assert own != sorted(own)
        begin += epoch.size
    found = [whole.sample_of(n) for n in (0, total - 1, total, 2 * total + 5)]
    assert found == [0, total - 1, 0, 5]
    assert whole.epoch_of(total).number == PASSES


def test_those_who_reach_a_pass_together_plan_it_once(split, monkeypatch):
    made: list[str] = []
    real = PlanParts.made

    def counted(parts: PlanParts) -> Iterator[np.ndarray]:
        made.append(parts.source)
        return real(parts)

    monkeypatch.setattr(PlanParts, "made", counted)
    samples = make_samples(SentencePairs(60, passes=2), split)
    size = samples.epoch_of(0).size
    several = [samples, samples, pickle.loads(pickle.dumps(samples))]
    threads = [threading.Thread(target=one.epoch_of, args=(size,)) for one in several]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(set(made)) == 2


def test_no_text_has_no_samples():
    samples = make_samples(SentencePairs(60, passes=2), MemorySplit([]))
    assert not samples
    assert len(samples) == 0


@pytest.mark.parametrize(
    ("shape", "rows"),
    [(SentencePairs(60, passes=PASSES), None), (LineBlocks(12), None), (CarriedRows(16, 8), 4)],
    ids=lambda value: type(value).__name__,
)
def test_a_large_text_that_is_read_later_is_planned_then(split, monkeypatch, shape, rows) -> None:
    options = {"separator": 1, "rows": rows}
    monkeypatch.setattr(samples_module, "_LARGE", 0)
    monkeypatch.setattr(plan_parts, "_TOKENS", 300)  # several parts
    later = make_samples(shape, split, **options, later=True)
    (first,) = later[0]
    before = plans_of(split)
    assert later.sample_of(0) == 0
    assert not later.is_planned
    again = pickle.loads(pickle.dumps(later))
    now = make_samples(shape, split, **options)
    assert plans_of(split) == before + 1
    for name, value in now[0][0].items():
        np.testing.assert_array_equal(first[name], value)
    for samples in (later, again):
        assert samples
        assert samples.is_planned
        assert len(samples) == len(now)
        assert contents(samples, range(len(now))) == contents(now, range(len(now)))

"""Planned samples hold the texts, numbers and segments that their plan's rows name."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.data.samples.memory_split import MemorySplit
from t5x_like.data.samples.samples import make_samples
from tests.data.records import RECORDS, Plainly, RecordsSplit


@dataclasses.dataclass(frozen=True)
class RandomSpans:
    """Random pairs of ranges, and a number, for every document."""

    count: int = 4
    separators: bool = False
    segments_of: str | None = "a"
    constants: ClassVar = (("always", 9),)
    columns: ClassVar = ("a_start", "label", "b_start", "b_end", "a_end")

    def plan(self, sentences, rng, documents):
        for _ in documents:
            drawn = rng.integers(0, sentences.total + 1, (self.count, 4))
            a, b = np.sort(drawn[:, :2]), np.sort(drawn[:, 2:])
            label = rng.integers(0, 2, self.count)
            table = np.stack([a[:, 0], label, b[:, 0], b[:, 1], a[:, 1]], axis=1)
            yield [tuple(row) for row in table.tolist()]
            yield []


@dataclasses.dataclass(frozen=True)
class Rows:
    """Carried rows. Each is a range of its own, cut in steps."""

    length: int = 3
    separators: bool = False
    segments_of: str | None = None
    columns: ClassVar = ("targets_start", "targets_end", "reset_memory")

    def steps(self, tokens, rows):
        if tokens < rows * self.length:
            raise ValueError(f"the corpus allows {tokens // self.length} rows")
        return tokens // rows // self.length

    def plan_rows(self, sentences, rng, steps, rows):
        share = self.steps(sentences.total, rows)
        for step in steps:
            starts = [(row * share + step) * self.length for row in range(rows)]
            yield [(start, start + self.length, int(step == 0)) for start in starts]


@given(records=RECORDS, separators=st.booleans(), segments_of=st.sampled_from([None, "a", "b"]))
def test_a_sample_is_what_its_row_says(records, separators, segments_of):
    shape = RandomSpans(separators=separators, segments_of=segments_of)
    samples = make_samples(shape, RecordsSplit(records), separator=-7)
    plain = Plainly.of(records, -7 if separators else None)
    assert len(samples) == shape.count * len(plain.documents)
    for i, row in enumerate(samples.plan.values.tolist()):
        (sample,) = samples[i]
        values = dict(zip(shape.columns, row, strict=True))
        ranges = {name: (values[f"{name}_start"], values[f"{name}_end"]) for name in "ab"}
        for name, (start, end) in ranges.items():
            assert sample[name].tolist() == plain.tokens[start:end]
        assert (sample["label"].shape, sample["label"].item()) == ((), values["label"])
        assert sample["always"].item() == 9
        assert ("segments" in sample) == ("documents" in sample) == (segments_of is not None)
        if segments_of:
            start, end = ranges[segments_of]
            inside = [[s - start for s in d[:-1] if start < s < end] for d in plain.documents]
            assert sample["segments"].tolist() == [s for some in inside for s in some]


def test_a_plan_is_a_matter_of_its_shape_alone(make_cache):
    texts = [f"document {i}\n" * 5 for i in range(9)]
    one = make_samples(RandomSpans(), make_cache(texts).split("train"))
    other = make_samples(RandomSpans(), make_cache(texts).split("train"))
    np.testing.assert_array_equal(one.plan.values, other.plan.values)
    more = make_samples(RandomSpans(count=5), make_cache(texts).split("train"))
    assert more.plan.values[:4].tolist() != one.plan.values[:4].tolist()
    again = pickle.loads(pickle.dumps(one))
    for name, value in again[7][0].items():
        np.testing.assert_array_equal(value, one[7][0][name])


def test_carried_rows_go_on_from_batch_to_batch(make_cache):
    split = make_cache(["some text of a document " * 9]).split("train")
    samples = make_samples(Rows(), split, rows=4)
    whole = split.record(0)["targets"].tolist()
    steps = len(samples) // 4
    for row in range(4):
        texts = [samples[step * 4 + row][0]["targets"].tolist() for step in range(steps)]
        begin = row * steps * 3
        assert list(itertools.chain.from_iterable(texts)) == whole[begin : begin + steps * 3]
    with pytest.raises(ValueError, match="the corpus allows"):
        make_samples(Rows(), split, rows=100)
    with pytest.raises(ValueError, match="say how many a batch has"):
        make_samples(Rows(), split)


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A geometry that plans the given rows."""

    rows: tuple
    columns: tuple[str, ...] = ("targets_start", "targets_end")
    separators: bool = False
    segments_of: str | None = None

    def plan(self, sentences, rng, documents):
        yield list(self.rows)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (Wrong(((0, 6),)), "a text from 0 to 6 in a stream of 5 tokens"),
        (Wrong(((0, 2), (3, 2))), "a text from 3 to 2"),
        (Wrong(((-1, 2),)), "a text from -1 to 2"),
        (Wrong(((0, 2, 1),)), "rows of 3 numbers"),
        (Wrong((), columns=("targets_start", "end")), "but not targets_end"),
    ],
)
def test_plans_that_are_none_are_refused(shape, message):
    with pytest.raises(ValueError, match=message):
        make_samples(shape, MemorySplit([(np.arange(5), np.zeros(0))]))

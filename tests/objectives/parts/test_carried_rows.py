"""Rows that carry memory: they go on, they reset, and A and B fall where a plain reading says."""

from __future__ import annotations

import itertools
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.objectives.parts.carried_rows import CarriedRows
from tests.objectives.sentences import CORPORA, SEEDS, InMemory, sigmas

Row = dict[str, int]


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def planned(geometry: CarriedRows, text: InMemory, rows: int, seed: int = 0) -> list[list[Row]]:
    """Steps of rows of columns by name."""
    every = range(geometry.steps(text.total, rows))
    steps = list(geometry.plan_rows(text, generator(seed), every, rows))
    assert all(type(value) is int for step in steps for row in step for value in row)
    return [[dict(zip(geometry.columns, row, strict=True)) for row in step] for step in steps]


def as_read(step: list[Row], row_length: int, backward: int) -> list[Row]:
    """The rows of one direction, in positions of what a reader has read."""
    rows = [row for row in step if row["backward"] == backward]
    turned = []
    for number, row in enumerate(rows):
        start, end = number * row_length, (number + 1) * row_length
        one = dict(row)
        for name in ("inputs", "first", "second"):
            low, high = row[f"{name}_start"], row[f"{name}_end"]
            edges = (end - high, end - low) if backward else (low - start, high - start)
            one[f"{name}_start"], one[f"{name}_end"] = edges
        turned.append(one)
    return turned


def two_texts(
    sentence: list[int], begin: int, total: int, *, draws: list[float]
) -> tuple[int, int, int, int, int]:
    """A, B and the label from the sentence of every token of a row, token by token."""
    coin, cut, place = draws
    end, cuts = begin + 1, []
    while end < len(sentence):
        if sentence[end] != sentence[end - 1]:
            if end - begin >= total:
                break
            cuts.append(end)
        end += 1
    middle = cuts[int(cut * len(cuts))] if cuts else end
    label = int(bool(cuts) and coin >= 0.5)
    if label:
        second = middle
    else:
        size = max(1, total - (middle - begin))
        second = int(place * (len(sentence) - size + 1))
        end = second + size
        while second > 0 and sentence[second - 1] == sentence[second]:
            second -= 1
        while end < len(sentence) and sentence[end - 1] == sentence[end]:
            end += 1
    while (middle - begin) + (end - second) > total:
        if middle - begin > end - second:
            middle -= 1
        else:
            end -= 1
    return begin, middle, second, end, label


@hypothesis.given(
    text=CORPORA.map(InMemory),
    reuse=st.integers(1, 40),
    pair=st.integers(2, 40),
    rows=st.integers(1, 4),
    bidirectional=st.booleans(),
    seed=SEEDS,
)
def test_a_plain_reading_of_the_rows(
    text: InMemory, reuse: int, pair: int, rows: int, bidirectional: bool, seed: int
):
    hypothesis.assume(text.total >= rows * (reuse + pair))
    geometry = CarriedRows(reuse + pair + 3, reuse, bidirectional)
    batch, length = rows * (2 if bidirectional else 1), text.total // rows
    steps = planned(geometry, text, batch, seed)
    # No row has the text for one step more.
    assert len(steps) * reuse + pair <= length < (len(steps) + 1) * reuse + pair

    lengths = [int(size) for document in text.documents for size in np.diff(document)]
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    begins = np.zeros(text.total + 1, bool)
    begins[text.starts] = True
    draws = generator(seed)
    for step, planned_rows in enumerate(steps):
        numbers = draws.random((batch, 3)).tolist()
        assert [row["backward"] for row in planned_rows] == [0] * rows + [1] * (batch - rows)
        for backward in range(batch // rows):
            for number, row in enumerate(as_read(planned_rows, length, backward)):
                part = slice(number * length, (number + 1) * length)
                reading = sentence[part][:: -1 if backward else 1].tolist()
                expected = two_texts(
                    reading, (step + 1) * reuse, pair, draws=numbers[backward * rows + number]
                )
                assert (row["inputs_start"], row["inputs_end"]) == (
                    step * reuse,
                    (step + 1) * reuse,
                )
                assert tuple(list(row.values())[2:7]) == expected
                assert row["first_end"] > row["first_start"]
                assert row["second_end"] > row["second_start"]
                at = part.stop - step * reuse if backward else part.start + step * reuse
                assert row["reset_memory"] == int(step == 0 or begins[at])


def test_rows_go_on_from_step_to_step():
    text = InMemory([[7, 12, 30], [55], [3] * 40] * 30)
    geometry = CarriedRows(64, 32)
    steps = planned(geometry, text, 6)
    for before, after in itertools.pairwise(steps):
        for old, new in zip(before, after, strict=True):
            assert old["backward"] == new["backward"]
            if old["backward"]:
                assert new["inputs_end"] == old["inputs_start"]
            else:
                assert new["inputs_start"] == old["inputs_end"]
    for step in steps:
        for row in step:
            sizes = [row[f"{n}_end"] - row[f"{n}_start"] for n in ("inputs", "first", "second")]
            assert sizes[0] == 32
            assert sum(sizes) + 3 == 64
            if row["backward"]:
                assert row["first_end"] == row["inputs_start"]
            else:
                assert row["first_start"] == row["inputs_end"]
    # Backward rows are the same text: the first of them begins where the first row ends.
    assert steps[0][0]["inputs_start"] == 0
    assert steps[0][3]["inputs_end"] == text.total // 3


def test_memory_is_reset_at_the_first_step_and_at_documents():
    text = InMemory([[8, 8], [16], [8], [8, 4], [12]])
    steps = planned(CarriedRows(16, 8), text, 2)
    forward, backward = zip(*steps, strict=True)
    assert text.total == 64
    assert [row["inputs_start"] for row in forward] == [0, 8, 16, 24, 32, 40, 48]
    assert [row["reset_memory"] for row in forward] == [1, 0, 1, 0, 1, 1, 0]
    # Read from the end, 12 + 12 + 8 + 16 + 16.
    assert [row["inputs_end"] for row in backward] == [64, 56, 48, 40, 32, 24, 16]
    assert [row["reset_memory"] for row in backward] == [1, 0, 0, 1, 1, 0, 1]


def test_labels_cuts_and_places():
    """With sentences of 5 tokens, 4 cuts of 25 tokens, half of the labels 1."""
    text = InMemory([[5] * 20_000])
    geometry = CarriedRows(48, 20, bidirectional=False)
    (rows,) = zip(*planned(geometry, text, 1), strict=True)
    draws = len(rows)
    assert draws > 4900
    labels = np.array([row["is_next"] for row in rows])
    assert sigmas(labels.sum(), draws, 0.5) < 5
    first = np.array([row["first_end"] - row["first_start"] for row in rows])
    second = np.array([row["second_start"] for row in rows])
    assert np.array_equal(second[labels == 1], [r["first_end"] for r in rows if r["is_next"]])
    # Where B follows, A and B fill 25 tokens to the letter, and neither is shortened.
    sizes = np.bincount(first[labels == 1], minlength=21)[5:21:5]
    assert sizes.sum() == labels.sum()
    assert np.all(sigmas(sizes, sizes.sum(), 0.25) < 5)
    # Random places are uniform in the row: they have its mean and spread.
    places = second[labels == 0] / text.total
    assert abs(places.mean() - 0.5) < 5 / math.sqrt(12 * len(places))
    assert abs((places**2).mean() - 1 / 3) < 5 * math.sqrt(4 / 45 / len(places))


def test_text_without_a_limit_is_never_followed():
    text = InMemory([[5000]])
    for step in planned(CarriedRows(64, 16), text, 4):
        for row in step:
            # A would go on for long: it is shortened, B alone would be, too.
            assert row["is_next"] == 0
            assert row["first_end"] - row["first_start"] == 23
            assert row["second_end"] - row["second_start"] == 22


def test_plans_depend_on_the_generator_alone():
    text = InMemory([[4, 9, 2]] * 200)
    geometry = CarriedRows(32, 16)
    assert planned(geometry, text, 4, 1) == planned(geometry, text, 4, 1)
    assert planned(geometry, text, 4, 1) != planned(geometry, text, 4, 2)


def test_too_little_text_and_odd_rows():
    text = InMemory([[100] * 10])
    with pytest.raises(ValueError, match=r"1000 tokens is too short for 34 rows.*allows 32 rows"):
        CarriedRows(64, 32).steps(text.total, 34)
    assert len(planned(CarriedRows(64, 32), text, 32)) == 1
    with pytest.raises(ValueError, match="allows 16 rows"):
        CarriedRows(64, 32, bidirectional=False).steps(text.total, 17)
    with pytest.raises(ValueError, match="allows 0 rows"):
        CarriedRows().steps(0, 2)
    with pytest.raises(ValueError, match="even number of rows"):
        CarriedRows(64, 32).steps(text.total, 3)
    with pytest.raises(ValueError, match="at least one row"):
        CarriedRows(64, 32, bidirectional=False).steps(text.total, 0)


@pytest.mark.parametrize(("length", "reuse"), [(512, 0), (512, 508), (5, 1), (0, 1)])
def test_lengths_without_room(length: int, reuse: int):
    with pytest.raises(ValueError, match="CarriedRows: "):
        CarriedRows(length, reuse)

"""Rows that continue: put together again they are the text, and documents begin where it says."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.rows.feature_converters import Decoder
from t5x_like.data.samples.memory_split import MemorySplit
from t5x_like.data.samples.samples import make_samples
from t5x_like.objectives.lm import ContinuedLanguageModeling
from t5x_like.objectives.parts.continued_rows import Continued, RandomlyContinued

EOD = 1
IDS = TokenIds(1000, pad=0, eos=EOD)


@hypothesis.given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=9),
    length=st.integers(1, 12),
    rows=st.integers(1, 4),
)
def test_rows_read_the_whole_text_once_and_know_its_documents(
    sizes: list[int], length: int, rows: int
):
    text = np.concatenate([[*range(10, 10 + size), EOD] for size in sizes])
    begins = np.concatenate([[1], text[:-1] == EOD])
    hypothesis.assume(len(text) >= rows * length)
    split = MemorySplit((np.arange(10, 10 + size), []) for size in sizes)
    objective, lengths = ContinuedLanguageModeling(), {"targets": length}
    samples = make_samples(objective.geometry(lengths), split, separator=EOD, rows=rows)
    steps, of_row = len(samples) // rows, len(text) // rows
    # No row has the text for one step more.
    assert (steps, len(samples) % rows) == (of_row // length, 0)
    for row in range(rows):
        part = slice(row * of_row, row * of_row + steps * length)
        made = []
        for step in range(steps):
            (sample,) = samples[step * rows + row]
            example = objective(sample, np.random.default_rng(0), IDS)
            features = objective.features(lengths)
            made.append(Decoder().convert([example], features=features, ids=IDS))
        joined = {name: np.concatenate([one[name] for one in made]) for name in made[0]}
        np.testing.assert_array_equal(joined["decoder_target_tokens"], text[part])
        # Each target is predicted from the one before it, across steps too.
        np.testing.assert_array_equal(
            joined["decoder_input_tokens"], [EOD, *text[part][:-1]], strict=False
        )
        np.testing.assert_array_equal(
            joined["decoder_document_starts"], [1, *begins[part][1:].astype(int)]
        )
        assert joined["decoder_loss_weights"].all()


@hypothesis.given(
    sizes=st.lists(st.integers(1, 40), min_size=4, max_size=9),
    length=st.integers(2, 12),
    rows=st.integers(1, 3),
)
def test_steps_of_random_lengths_read_the_same_text(sizes: list[int], length: int, rows: int):
    text = np.concatenate([[*range(10, 10 + size), EOD] for size in sizes])
    hypothesis.assume(len(text) >= rows * length)
    split = MemorySplit((np.arange(10, 10 + size), []) for size in sizes)
    objective, lengths = ContinuedLanguageModeling(mean_length=length - 1), {"targets": length}
    shape = objective.geometry(lengths)
    samples = make_samples(shape, split, separator=EOD, rows=rows)
    steps, of_row = len(samples) // rows, len(text) // rows
    tokens = shape.lengths(steps + 1).cumsum()
    assert (tokens[:steps] <= of_row).all()
    assert tokens[steps] > of_row
    for row in range(rows):
        made = []
        for step in range(steps):
            (sample,) = samples[step * rows + row]
            example = objective(sample, np.random.default_rng(0), IDS)
            features = objective.features(lengths)
            made.append(Decoder().convert([example], features=features, ids=IDS))
        joined = {name: np.concatenate([one[name] for one in made]) for name in made[0]}
        counts = joined["decoder_loss_weights"] > 0
        part = text[row * of_row : row * of_row + tokens[steps - 1]]
        np.testing.assert_array_equal(joined["decoder_target_tokens"][counts], part)
        np.testing.assert_array_equal(joined["decoder_input_tokens"][counts], [EOD, *part[:-1]])
        begins = [1, *(part[:-1] == EOD).astype(int)]
        np.testing.assert_array_equal(joined["decoder_document_starts"][counts], begins)


def test_the_lengths_of_steps_have_their_mean_their_deviation_and_half_of_it():
    shape = RandomlyContinued(95, mean=70)
    lengths = shape.lengths(20_000)
    np.testing.assert_array_equal(shape.lengths(100), lengths[:100])
    short = lengths < 53
    assert abs(short.mean() - 0.05) < 5 * (0.05 * 0.95 / len(lengths)) ** 0.5
    for some, mean in ((short, 35), (~short, 70)):
        assert abs(lengths[some].mean() - mean) < 5 * 5 / some.sum() ** 0.5
        assert lengths[some].std() == pytest.approx(5, rel=0.1)
    with pytest.raises(ValueError, match="a mean of 70 tokens a step does not fit rows of 64"):
        ContinuedLanguageModeling(mean_length=70).geometry({"targets": 64})


def test_a_row_of_padding_begins_nothing():
    objective = ContinuedLanguageModeling()
    row = Decoder().convert([], features=objective.features({"targets": 3}), ids=IDS)
    assert not row["decoder_document_starts"].any()
    assert not row["decoder_loss_weights"].any()


def test_too_little_text_and_lengths_without_room():
    with pytest.raises(ValueError, match=r"100 tokens is too short for 9 rows.*allows 8 rows"):
        Continued(12).steps(100, 9)
    with pytest.raises(ValueError, match="at least one token, got length 0"):
        Continued(0)
    with pytest.raises(ValueError, match="set their length to 1 or more"):
        ContinuedLanguageModeling().geometry({"targets": 0})

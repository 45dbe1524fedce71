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
from t5x_like.objectives.parts.continued_rows import Continued

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

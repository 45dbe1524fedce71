from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.data import packing
from t5x_like.data.feature_converters import EncoderDecoder
from t5x_like.data.packing import PackedSamples, added_tokens, plan_rows
from t5x_like.data.stream import Component, Examples
from t5x_like.protocols import TokenIds

LENGTHS = {"inputs": 12, "targets": 8}
PAIRS = [{"inputs": "i" * (i % 15), "targets": "t" * (1 + i % 4)} for i in range(60)]
EOS = {"inputs": 1, "targets": 1}


@given(needs=st.lists(st.tuples(st.integers(0, 10), st.integers(0, 6)), max_size=80))
def test_every_record_is_in_one_row_that_has_room(needs):
    array = np.array(needs, np.int64).reshape(-1, 2).T
    plan = plan_rows(array, (10, 6))
    assert sorted(plan.members.tolist()) == list(range(len(needs)))
    for row in range(len(plan.ends)):
        members = plan.row(row)
        assert len(members)
        assert members.tolist() == sorted(members)
        assert (array[:, members].sum(axis=1) <= (10, 6)).all()


def test_a_record_goes_to_the_first_row_with_room():
    plan = plan_rows(np.array([[6, 6, 4, 3, 1]]), (10,))
    assert [plan.row(i).tolist() for i in range(2)] == [[0, 2], [1, 3, 4]]


def test_the_fullest_row_is_closed_when_too_many_are_open(monkeypatch):
    monkeypatch.setattr(packing, "_OPEN_ROWS", 2)
    plan = plan_rows(np.array([[7, 6, 9, 4, 3]]), (10,))
    # The row of 7 is closed for the 9, and so takes no 3.
    assert [plan.row(i).tolist() for i in range(4)] == [[0], [1, 3], [2], [4]]


def test_rows_fit_after_trimming_and_eos(make_cache):
    split = make_cache(PAIRS, PAIRS[:1]).split("train")
    steps = ("append_eos_after_trim",)
    samples = PackedSamples(split, LENGTHS, extra=added_tokens(steps, EOS))
    component = Component("task", samples, None, steps, EOS, TokenIds(259))
    examples = Examples(component, LENGTHS, 0, EncoderDecoder(pack=True))
    rows = [examples[i] for i in range(len(samples))]
    placed = sum(int(row["decoder_segment_ids"].max()) for row in rows)
    assert placed == len(PAIRS)
    tokens = {"inputs": "encoder_input_tokens", "targets": "decoder_target_tokens"}
    for feature, name in tokens.items():
        filled = np.mean([row[name] != 0 for row in rows])
        assert samples.efficiency[feature] == pytest.approx(filled)
        ends = sum(int((row[name] == 1).sum()) for row in rows)
        assert ends == len(PAIRS)
    assert max(samples.efficiency.values()) > 0.8


def test_plan_is_kept_beside_the_cache_and_reused(make_cache, monkeypatch):
    split = make_cache(PAIRS, PAIRS[:1]).split("train")
    plan = PackedSamples(split, LENGTHS, extra={}).plan
    monkeypatch.setattr(packing, "plan_rows", None)
    again = pickle.loads(pickle.dumps(PackedSamples(split, LENGTHS, extra={}))).plan
    assert again.members.tolist() == plan.members.tolist()
    assert again.ends.tolist() == plan.ends.tolist()
    with pytest.raises(TypeError):  # other lengths need another plan
        _ = PackedSamples(split, LENGTHS, extra=EOS).plan


def test_cache_that_cannot_be_written_still_packs(make_cache, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(packing, "_save", refuse)
    split = make_cache(PAIRS, PAIRS[:1]).split("train")
    assert len(PackedSamples(split, LENGTHS, extra={})) > 5
    assert not list(Path(split.directory).glob("*.packed-*"))


def test_missing_feature_is_an_error(make_cache):
    split = make_cache(["text"]).split("train")
    with pytest.raises(ValueError, match=r"no feature .*inputs.*, only targets"):
        PackedSamples(split, LENGTHS, extra={})

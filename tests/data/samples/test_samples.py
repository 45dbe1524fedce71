"""Samples of every geometry are the ranges of the stream that the geometry names."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t5x_like.data.cache import tokenization
from t5x_like.data.samples.memory_split import MemorySplit
from t5x_like.data.samples.samples import is_carried, make_samples
from t5x_like.objectives.parts.geometry import (
    ConcatenateAndSplit,
    Duplicated,
    PerRecord,
    SplitDocuments,
)
from t5x_like.vocabularies.byte import ByteVocabulary
from tests.data.records import RECORDS, SEPARATORS, Plainly, RecordsSplit

ENCODE = ByteVocabulary().encode


def targets(samples: Any) -> list[list[int]]:
    found = [samples[i] for i in range(len(samples))]
    assert {sample["targets"].dtype for (sample,) in found} <= {np.dtype(np.int32)}
    for outside in (-1, len(samples)):
        with pytest.raises(IndexError):
            samples[outside]
    return [sample["targets"].tolist() for (sample,) in found]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text("ab\n", max_size=30).filter(str.strip), min_size=1, max_size=8),
    length=st.integers(1, 40),
)
def test_concatenation_is_cut_every_length(texts, length, make_cache, monkeypatch):
    monkeypatch.setattr(tokenization, "PIECE_TOKENS", 16)
    samples = make_samples(ConcatenateAndSplit(length), make_cache(texts).split("train"))
    whole = ENCODE("".join(texts))
    assert targets(samples) == [whole[i : i + length] for i in range(0, len(whole), length)]


@given(records=RECORDS, mark=SEPARATORS, data=st.data())
def test_strides_cover_the_stream_with_the_overlap_they_say(records, mark, data):
    length = data.draw(st.integers(1, 12))
    stride = data.draw(st.integers(1, length))
    shape = ConcatenateAndSplit(length, stride, separators=mark is not None)
    found = targets(make_samples(shape, RecordsSplit(records), separator=-7))
    whole = Plainly.of(records, mark).tokens
    assert found == [whole[i * stride : i * stride + length] for i in range(len(found))]
    assert [token for sample in found[:1] for token in sample] == whole[:length]
    assert [token for sample in found[1:] for token in sample[length - stride :]] == whole[length:]
    assert all(len(sample) > length - stride for sample in found[1:]), "nothing twice over"


@given(records=RECORDS, length=st.integers(1, 12))
def test_documents_are_cut_and_never_mixed(records, length):
    split = RecordsSplit(records)
    plain = Plainly.of(records, None)
    expected = [
        plain.tokens[i : min(i + length, document[-1])]
        for document in plain.documents
        for i in range(document[0], document[-1], length)
    ]
    assert targets(make_samples(SplitDocuments(length), split)) == expected


@given(records=RECORDS, times=st.integers(1, 3))
def test_duplicates_come_pass_after_pass(records, times):
    split, base = RecordsSplit(records), SplitDocuments(3)
    once = targets(make_samples(base, split))
    assert targets(make_samples(Duplicated(base, times), split)) == once * times


def test_records_without_tokens_are_stepped_over(make_cache):
    pairs = [{"inputs": "i", "targets": text} for text in ("", "ab", "", "", "cde", "")]
    split = make_cache(pairs, pairs[1:2]).split("train")
    assert targets(make_samples(ConcatenateAndSplit(2), split)) == [
        ENCODE("ab"),
        ENCODE("cd"),
        ENCODE("e"),
    ]
    assert targets(make_samples(SplitDocuments(2), split)) == [
        ENCODE("ab"),
        ENCODE("cd"),
        ENCODE("e"),
    ]


def test_one_record_is_one_sample(make_cache):
    pairs = [{"inputs": "i" * i, "targets": "t"} for i in range(1, 4)]
    samples = make_samples(PerRecord(), make_cache(pairs, pairs[:1]).split("train"))
    assert len(samples) == 3
    (sample,) = samples[2]
    assert {name: ids.tolist() for name, ids in sample.items()} == {
        "inputs": ENCODE("iii"),
        "targets": ENCODE("t"),
    }


def test_constants_are_in_every_sample():
    split = MemorySplit([(np.arange(7), np.zeros(0))])
    shape = ConcatenateAndSplit(3, constants=(("prefix", 5),))
    for i in range(3):
        (sample,) = make_samples(shape, split)[i]
        assert (sample["prefix"].item(), sample["prefix"].shape) == (5, ())
        assert sample["prefix"].dtype == np.int32


@pytest.mark.parametrize(
    "shape",
    [ConcatenateAndSplit(5), SplitDocuments(5), PerRecord(), Duplicated(SplitDocuments(5), 2)],
)
def test_samples_pickle(shape, make_cache):
    split = make_cache(["some text", "and more"]).split("train")
    samples = make_samples(shape, split)
    assert targets(pickle.loads(pickle.dumps(samples))) == targets(samples)


def test_what_cannot_be_made_is_an_error(make_cache):
    split = make_cache(["text"]).split("train")
    with pytest.raises(TypeError, match="no samples of geometry"):
        make_samples(object(), split)
    with pytest.raises(ValueError, match=r"separates documents.*neither <eod> nor"):
        make_samples(ConcatenateAndSplit(5, separators=True), split)


def test_carried_shapes_are_told_by_what_they_plan():
    @dataclasses.dataclass(frozen=True)
    class Carried:
        def plan_rows(self, sentences, rng, steps, rows): ...

    assert is_carried(Carried())
    assert not is_carried(SplitDocuments(3))

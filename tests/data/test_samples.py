from __future__ import annotations

import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from t5x_like.data import cache_text
from t5x_like.data.samples import ConcatenatedSamples, RecordSamples, make_samples
from t5x_like.objectives.geometry import ConcatenateAndSplit, PerRecord
from t5x_like.vocabularies.byte import ByteVocabulary

ENCODE = ByteVocabulary().encode


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text("ab\n", min_size=1, max_size=30), min_size=1, max_size=8),
    length=st.integers(1, 40),
)
def test_concatenation_is_cut_every_length(texts, length, make_cache, monkeypatch):
    monkeypatch.setattr(cache_text, "PIECE_TOKENS", 16)
    split = make_cache(texts).split("train")
    samples = make_samples(ConcatenateAndSplit(length), split)
    whole = ENCODE("".join(texts))
    expected = [whole[i : i + length] for i in range(0, len(whole), length)]
    assert [samples[i][0]["targets"].tolist() for i in range(len(samples))] == expected
    with pytest.raises(IndexError):
        samples[len(samples)]


def test_records_without_tokens_are_stepped_over(make_cache):
    pairs = [{"inputs": "i", "targets": text} for text in ("", "ab", "", "", "cde", "")]
    split = make_cache(pairs, pairs[1:2]).split("train")
    samples = ConcatenatedSamples(split, 2)
    assert [samples[i][0]["targets"].tolist() for i in range(len(samples))] == [
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


def test_samples_pickle(make_cache):
    split = make_cache(["some text", "and more"]).split("train")
    for samples in (ConcatenatedSamples(split, 5), RecordSamples(split)):
        again = pickle.loads(pickle.dumps(samples))
        assert again[1][0]["targets"].tolist() == samples[1][0]["targets"].tolist()


def test_unknown_geometry_is_an_error(make_cache):
    with pytest.raises(TypeError, match="no samples of geometry"):
        make_samples(object(), make_cache(["text"]).split("train"))

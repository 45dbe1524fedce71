from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.core import whole_files
from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.cache import format
from t5x_like.data.cache.format import CacheError, FileSum, Manifest, Shard, SplitInfo
from t5x_like.data.cache.record_codec import RecordCodec

IDS = st.lists(st.integers(0, 65535), max_size=20)


@given(inputs=IDS, targets=IDS, weights=st.lists(st.floats(width=32, allow_nan=False), max_size=9))
def test_records_survive_with_segments(inputs, targets, weights):
    codec = RecordCodec({"inputs": "uint16", "targets": "int32", "w": "float32"})
    segments = np.arange(len(inputs), dtype=np.int32)
    record = {"inputs": inputs, "targets": targets, "w": weights}
    data = codec.encode({name: np.asarray(v) for name, v in record.items()}, segments)
    decoded = codec.decode(data)
    assert {name: value.tolist() for name, value in decoded.items()} == record
    assert {str(value.dtype) for value in decoded.values()} <= {"int32", "float32"}
    assert codec.segments(data).tolist() == segments.tolist()


@given(st.lists(st.tuples(IDS, IDS, st.integers(0, 5)), max_size=6))
def test_records_joined_are_the_records_one_after_another(records):
    codec = RecordCodec({"inputs": "uint16", "w": "float32", "targets": "int32"})
    data = [
        codec.encode(
            {"inputs": np.array(inputs), "w": np.array(inputs), "targets": np.array(targets)},
            np.arange(segments) * 70_000,
        )
        for inputs, targets, segments in records
    ]
    for name, place in (("inputs", 0), ("targets", 1)):
        joined = codec.joined(data, name)
        assert joined.values.dtype == codec.features[name]
        assert joined.values.tolist() == [value for record in records for value in record[place]]
        assert joined.counts.tolist() == [record[2] for record in records]
        starts = [70_000 * i for record in records for i in range(record[2])]
        assert joined.segments.tolist() == starts
    with pytest.raises(KeyError, match="no feature 'other'"):
        codec.joined(data, "other")


def test_bytes_of_a_record_are_fixed():
    # Caches outlive versions. A change of these bytes needs another FORMAT_VERSION.
    codec = RecordCodec({"inputs": "uint16", "targets": "int32"})
    data = codec.encode({"inputs": np.array([258]), "targets": np.array([7])}, np.array([0]))
    lengths_and_segments = [1, 1, 1, 0]
    assert data == np.asarray(lengths_and_segments, "<i4").tobytes() + b"\2\1" + b"\7\0\0\0"


def test_token_dtype_holds_every_id():
    assert format.token_dtype(65536) == "uint16"
    assert format.token_dtype(65537) == "int32"


def manifest() -> Manifest:
    shard = Shard("train-00000.arrayrecord", 3, 99, "5a")
    names = (format.offsets_name, format.new_document_name, format.counts_name)
    index = {name("train"): FileSum(5, "f0") for name in names}
    info = SplitInfo((shard,), 3, 2, {"targets": 7}, 1, index)
    return Manifest(
        corpus="c",
        corpus_fingerprint="f",
        vocabulary={"class": "Byte"},
        vocabulary_fingerprint="v",
        token_ids=TokenIds(vocab_size=259),
        features={"targets": "uint16"},
        files={"vocabulary.json": FileSum(5, "f0")},
        splits={"train": info},
    )


def test_manifest_survives_json(tmp_path: Path):
    text = json.dumps(manifest().to_json())
    whole_files.write(tmp_path / "manifest.json", text.encode())
    assert format.read_manifest(tmp_path) == manifest()


def test_manifest_of_another_version_is_refused(tmp_path: Path):
    fields = manifest().to_json() | {"version": 0}
    (tmp_path / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(CacheError, match=r"format 0.*reads format 4.*t5x_like cache"):
        format.read_manifest(tmp_path)


def test_damaged_manifest_is_refused(tmp_path: Path):
    (tmp_path / "manifest.json").write_text('{"vers')
    with pytest.raises(CacheError, match=r"manifest\.json is damaged"):
        format.read_manifest(tmp_path)


def test_missing_and_incomplete_caches_are_told_apart(tmp_path: Path):
    with pytest.raises(CacheError, match="holds no cache"):
        format.read_manifest(tmp_path)
    (tmp_path / "train-00000.arrayrecord").touch()
    with pytest.raises(CacheError, match="not complete"):
        format.read_manifest(tmp_path)

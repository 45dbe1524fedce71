"""Files of evaluation examples: values as they were, or an error that says what to do."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from t5x_like.data.cache.format import CacheError
from t5x_like.data.task_files import evaluation_files

EXAMPLE = {
    "targets": np.array([5, 1], np.int32),
    "text": "Zürich".encode() + b"\xff\n",
    "score": np.float32(0.1),
    "missing": np.float64("nan"),
    "answers": np.array([b"a", "é".encode()], object),
    "none": np.array([], object),
    "grid": np.zeros((2, 0, 3), np.int64),
    "names": np.array([[b"x", b""]], object),
    "right": np.bool_(True),
}
DTYPES = {
    name: "bytes" if isinstance(value, bytes) or value.dtype == object else value.dtype.name
    for name, value in EXAMPLE.items()
}


def test_values_keep_kind_dtype_and_shape(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "test.jsonl.gz"
    evaluation_files.write(file, [EXAMPLE, EXAMPLE, EXAMPLE], dtypes=DTYPES, fingerprint="f")
    found = evaluation_files.read(file, at_most=2)
    assert (len(found.examples), found.total, evaluation_files.fingerprint_of(file)) == (2, 3, "f")
    for name, value in EXAMPLE.items():
        read = found.examples[1][name]
        assert type(read) is type(value), name
        if not isinstance(value, bytes):
            assert (read.dtype, read.shape) == (value.dtype, value.shape), name
        np.testing.assert_array_equal(read, value, err_msg=name)


def test_some_examples_are_spread_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl.gz"
    labels = [{"label": np.int64(n // 50)} for n in range(100)]
    evaluation_files.write(file, labels, dtypes={"label": "int64"}, fingerprint="f")
    found = evaluation_files.read(file, at_most=10)
    assert [one["label"] for one in found.examples] == [0] * 5 + [1] * 5
    assert found.total == 100


@pytest.mark.parametrize("content", [b"", b"{}\n", b"no json", b"\x1f\x8b\x08\x00"])
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl.gz"
    file.write_bytes(content)
    with pytest.raises(CacheError, match=r"test\.jsonl\.gz cannot be read .* delete it"):
        evaluation_files.read(file)
    assert evaluation_files.fingerprint_of(file) is None


HEADER = {"format": 1, "fingerprint": "f", "examples": 2, "dtypes": {"targets": "int32"}}


@pytest.mark.parametrize(
    "content",
    [
        [b'{"targets": "' + b"0" * (evaluation_files.MOST_LINE + 1)],
        [b" " * (1 << 20) + b"\n"] * 400,
        [b"[" * 100_000],
    ],
    ids=["a line", "the whole", "brackets"],
)
def test_a_small_file_of_much_content_is_refused(content: list[bytes], tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=1) as out:
        out.write(json.dumps(HEADER).encode() + b"\n")
        out.writelines(content)
    tracemalloc.start()
    with pytest.raises(CacheError, match=r"test\.jsonl\.gz cannot be read"):
        evaluation_files.read(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * evaluation_files.MOST_LINE


@pytest.mark.parametrize("dtype", ["O", "S1000000000", "V8", "M8[s]", 7, "int32,int32"])
def test_other_dtypes_than_those_of_numbers_are_refused(dtype: object, tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl.gz"
    with gzip.open(file, "wt") as out:
        out.write(json.dumps({**HEADER, "dtypes": {"targets": dtype}}) + '\n{"targets": ["a"]}\n')
    with pytest.raises(CacheError, match="is not a dtype of numbers"):
        evaluation_files.read(file)

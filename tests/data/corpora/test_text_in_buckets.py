"""Text in buckets reads as it does on a disk, whatever its format and compression."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from t5x_like.core.buckets import storage
from t5x_like.data.corpora.corpus import CorpusError
from t5x_like.data.corpora.text_files import TextFiles

LINES = [f"Line {i} has some words.\n" for i in range(40)]
ROWS = [json.dumps({"text": line.strip()}) + "\n" for line in LINES]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of several formats; the .zst has two frames, the .gz two members."""
    tmp_path = tmp_path / "text"
    tmp_path.mkdir()
    body = "\n".join(LINES).encode()
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + body)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(body[:200]) + gzip.compress(body[200:]))
    frame = zstandard.ZstdCompressor().compress
    (tmp_path / "c.txt.zst").write_bytes(frame(body[:333]) + frame(body[333:]))
    (tmp_path / "d.jsonl").write_text("".join(ROWS))
    (tmp_path / "e.tsv").write_text("text\tnumber\n" + "".join(f"{x.strip()}\t1\n" for x in LINES))
    return tmp_path


@pytest.fixture
def copy(folder: Path, bucket: str) -> str:
    for file in folder.iterdir():
        storage.write(f"{bucket}/text/{file.name}", file.read_bytes())
    return f"{bucket}/text"


@pytest.mark.parametrize("pattern", ["*.txt*", "d.jsonl", "*.tsv", "**/*"])
def test_documents_splits_and_fingerprint_are_those_of_the_disk(
    pattern: str, folder: Path, copy: str
) -> None:
    here, there = (TextFiles(f"{place}/{pattern}", validation=0.2) for place in (folder, copy))
    for split in ("train", "validation"):
        assert [*there.documents(split)] == [*here.documents(split)]
    assert there.fingerprint() == here.fingerprint()
    assert there.columns == here.columns


def test_parquet_is_read_in_parts(folder: Path, copy: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": LINES}), folder / "f.parquet")
    storage.write(f"{copy}/f.parquet", (folder / "f.parquet").read_bytes())
    here, there = (TextFiles(f"{place}/f.parquet") for place in (folder, copy))
    assert [*there.documents("train")] == [*here.documents("train")]


def test_files_held_out_are_not_trained_on(copy: str) -> None:
    corpus = TextFiles(f"{copy}/*.txt*", validation_files=f"{copy}/c*")
    assert len([*corpus.documents("train")]) == 80
    assert len([*corpus.documents("validation")]) == 40


@pytest.mark.parametrize(
    ("pattern", "advice"), [("*.csv", "no object matches"), ("", r"it is a folder; write .*/\*")]
)
def test_a_pattern_without_files_is_refused(pattern: str, advice: str, copy: str) -> None:
    with pytest.raises(CorpusError, match=advice):
        TextFiles(f"{copy}/{pattern}").fingerprint()

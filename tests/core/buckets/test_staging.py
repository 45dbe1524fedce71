"""Copies of buckets on a disk."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from t5x_like.cli.common import errors
from t5x_like.core.buckets import sending, staging, storage
from t5x_like.core.buckets.storage import StorageError


def test_a_place_and_its_address_belong_together(bucket: str, tmp_path: Path) -> None:
    place = staging.local(f"{bucket}/caches/one")
    assert place.is_relative_to(tmp_path / "stage")
    assert staging.address(place) == f"{bucket}/caches/one"
    assert staging.local(tmp_path / "here") == tmp_path / "here"
    assert staging.address(tmp_path / "here") is None


def test_an_error_about_a_copy_names_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(staging.FOLDER, "/tmp/copies (of mine)")
    local = staging.local("gs://mine/some/none.jsonl")
    error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(local))
    assert errors.text_of(error) == (
        "[Errno 2] No such file or directory: 'gs://mine/some/none.jsonl'"
    )
    assert staging.with_addresses(f"{local}: line 3") == "gs://mine/some/none.jsonl: line 3"
    assert staging.with_addresses("/tmp/copies/gs/mine") == "/tmp/copies/gs/mine"
    for noted, of in ((True, local), (False, "/tmp/other")):
        with pytest.raises(ValueError, match="line 3") as caught, staging.naming_addresses():
            raise ValueError(f"{of}: line 3")
        notes = getattr(caught.value, "__notes__", [])
        assert notes == ["The addresses: gs://mine/some/none.jsonl: line 3"] * noted


def test_what_is_written_is_sent_and_found_by_another_host(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = staging.local(f"{bucket}/vocabularies/mine")
    with sending.to_bucket(place):
        place.mkdir(parents=True)
        (place / "pieces.model").write_bytes(b"pieces")
        (place / "vocabulary.json").write_text("{}")
        (place / "half.tmp").write_text("not whole")
    assert [*storage.files_below(bucket)] == [
        "vocabularies/mine/pieces.model",
        "vocabularies/mine/vocabulary.json",
    ]
    monkeypatch.setenv("T5X_LIKE_STAGE", str(tmp_path / "another host"))
    there = staging.fetched(f"{bucket}/vocabularies/mine")
    assert (there / "pieces.model").read_bytes() == b"pieces"
    storage.write(f"{bucket}/vocabularies/mine/pieces.model", b"others")
    staging.fetch(there)
    assert (there / "pieces.model").read_bytes() == b"others"


def test_a_folder_is_unfinished_until_its_last_files_are_there(bucket: str) -> None:
    place = staging.local(f"{bucket}/cache")
    storage.write(f"{bucket}/cache/manifest.json", b"{}")
    storage.write(f"{bucket}/cache/old.shard", b"old")
    with sending.to_bucket(place, last=["manifest.json"]):
        assert storage.info_of(f"{bucket}/cache/manifest.json") is None
        place.mkdir(parents=True)
        (place / "manifest.json").write_text("{1}")
        (place / "new.shard").write_text("new")
    assert [*storage.files_below(bucket)] == ["cache/manifest.json", "cache/new.shard"]


def test_what_fails_leaves_the_bucket_unfinished(bucket: str) -> None:
    place = staging.local(f"{bucket}/cache")
    place.mkdir(parents=True)

    def fail() -> None:
        with sending.to_bucket(place, last=["manifest.json"]):
            (place / "manifest.json").write_text("{}")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert storage.info_of(f"{bucket}/cache/manifest.json") is None


def folders(root: Path, sizes: dict[str, int]) -> None:
    """Copied folders of so many bytes, the first one used longest ago."""
    for age, (name, size) in enumerate(sizes.items()):
        place = staging.local(f"gs://copies/{name}")
        place.mkdir(parents=True)
        (place / "shard").write_bytes(bytes(size))
        (place / ".in_use").touch()
        os.utime(place / ".in_use", (age, age))


def test_room_is_made_by_what_was_used_longest_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T5X_LIKE_STAGE", str(tmp_path))
    monkeypatch.setenv("T5X_LIKE_STAGE_GB", "0.00001")  # 10,000 bytes
    folders(tmp_path, {"old": 4000, "used": 1000, "new": 4000})
    used = staging.local("gs://copies/used")
    with (used / ".in_use").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        staging.make_room(4500)
        assert {path.name for path in (tmp_path / "gs/copies").iterdir()} == {"used", "new"}
        staging.make_room(8900)
        assert {path.name for path in (tmp_path / "gs/copies").iterdir()} == {"used"}
        with pytest.raises(StorageError, match="T5X_LIKE_STAGE_GB"):
            staging.make_room(9500)
        assert used.exists()
    staging.make_room(9500)
    assert not used.exists()


def test_a_limit_that_is_no_number_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T5X_LIKE_STAGE", str(tmp_path))
    monkeypatch.setenv("T5X_LIKE_STAGE_GB", "ten")
    with pytest.raises(StorageError, match="number of gigabytes"):
        staging.make_room(1)


def test_what_changed_after_it_was_sent_is_sent_again(bucket: str) -> None:
    """As after a kill: what was written last had not gone yet."""
    place = staging.local(f"{bucket}/cache")
    with sending.to_bucket(place):
        place.mkdir(parents=True)
        (place / "shard").write_bytes(b"one")
    (place / "shard").write_bytes(b"two")
    with sending.to_bucket(place):
        pass
    assert storage.read(f"{bucket}/cache/shard") == b"two"
    (place / "shard").write_bytes(b"six")
    staging.fetch(place)
    assert (place / "shard").read_bytes() == b"two"

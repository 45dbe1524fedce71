"""Caches in buckets: made there, copied to the disks of hosts, checked, made anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from t5x_like.core.buckets import sending, staging, storage
from t5x_like.core.buckets.storage import StorageError
from t5x_like.data.cache import staged_cache, writer
from t5x_like.data.cache.format import CacheError
from t5x_like.data.cache.reader import Cache
from t5x_like.data.dataset import Data
from t5x_like.data.vocabulary_choice import VocabularyChoice


@pytest.fixture
def another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Goes on as a host whose disk holds no copies."""
    hosts = iter(range(99))
    return lambda: monkeypatch.setenv("T5X_LIKE_STAGE", str(tmp_path / f"host{next(hosts)}"))


@pytest.fixture
def data(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Data:
    """A text in a bucket, to be cached there in some shards."""
    monkeypatch.setattr(writer, "BLOCK_BYTES", 500)
    text = "\n\n".join(f"This is document {i}. It is short." for i in range(90))
    storage.write(f"{bucket}/text/notes.txt", text.encode())
    return Data(
        corpus=f"{bucket}/text/*.txt",
        objective="mlm",
        vocabulary=VocabularyChoice(name="bytes"),
        cache_dir=f"{bucket}/cache",
        workers=1,
    )


def records(cache: Cache) -> list[np.ndarray]:
    split = cache.split("train")
    return [split.record(i)["targets"] for i in range(len(split))]


def test_another_host_reads_the_same_records(
    data: Data, bucket: str, another_host: Callable[[], None]
) -> None:
    (made,) = data.make_caches()
    assert len(made.manifest.splits["train"].shards) > 4
    here = records(made)
    another_host()
    url = staging.address(made.directory)
    assert url is None  # that copy is of the other host
    (name,) = {one.split("/")[2] for one in storage.files_below(bucket) if "manifest" in one}
    there = Cache.open(f"{bucket}/cache/tokens/{name}")
    for mine, theirs in zip(here, records(there), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not [one for one in storage.files_below(bucket) if one.endswith((".npz", ".tmp"))]


def test_a_reader_waits_for_the_shard_that_it_needs_alone(
    data: Data,
    bucket: str,
    another_host: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (made,) = data.make_caches()
    url = str(staging.address(made.directory))
    another_host()
    monkeypatch.setattr(staged_cache, "_fetch", lambda directory, shards: None)
    there = Cache.open(url)
    assert there.vocabulary.fingerprint == made.vocabulary.fingerprint
    assert there.token_ids.counts is not None
    assert [*there.directory.glob("*.arrayrecord")] == []
    there.split("train").record(0)
    assert [one.name for one in there.directory.glob("*.arrayrecord")] == [
        "train-00000.arrayrecord"
    ]


def test_a_text_has_one_fingerprint_on_a_disk_and_in_a_bucket(data: Data, tmp_path: Path) -> None:
    url = str(data.corpus)
    (tmp_path / "notes.txt").write_bytes(storage.glob(url)[0].open().read())
    (there,) = data.find_tasks()
    local = Data(corpus=str(tmp_path / "notes.txt"), objective="mlm")
    (here,) = local.find_tasks()
    assert there.corpus is not None
    assert here.corpus is not None
    assert there.corpus.fingerprint() == here.corpus.fingerprint()
    assert [*there.corpus.documents("train")] == [*here.corpus.documents("train")]


@pytest.mark.slow
def test_a_cache_that_was_made_anew_replaces_its_copy(
    data: Data, bucket: str, another_host: Callable[[], None]
) -> None:
    (first,) = data.make_caches()
    url = staging.address(first.directory)
    assert url is not None
    another_host()
    Cache.open(url)
    storage.write(f"{bucket}/text/notes.txt", b"Another text.\n\nOf two documents.")
    with pytest.raises(CacheError, match="another text"):
        data.make_caches()
    data.make_caches(overwrite=True)
    assert len(records(Cache.open(url))) < 5


def test_a_damaged_shard_is_no_text(
    data: Data, bucket: str, another_host: Callable[[], None]
) -> None:
    (made,) = data.make_caches()
    url = staging.address(made.directory)
    shard = made.manifest.splits["train"].shards[0]
    content = bytearray(storage.read(f"{url}/{shard.file}"))
    content[len(content) // 2] ^= 1
    storage.write(f"{url}/{shard.file}", bytes(content))
    another_host()
    with pytest.raises(StorageError, match="damaged"):
        records(Cache.open(str(url)))


@pytest.mark.slow
def test_a_writer_that_was_killed_goes_on_from_the_bucket(
    data: Data, another_host: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole,) = data.make_caches()
    url = staging.address(whole.directory)
    expected = {name: info["size"] for name, info in storage.files_below(str(url)).items()}
    storage.remove(str(url))

    another_host()
    monkeypatch.setattr(sending, "_SECONDS", 0.05)
    written: list[str] = []
    write_packed = writer.ShardPlan.write_packed

    def killed(plan: writer.ShardPlan, split: str, number: int, **rest: object) -> int:
        if len(written) == 3:
            sent = f"{url}/{written[-1]}"
            while storage.info_of(sent) is None:
                pass
            raise KeyboardInterrupt
        written.append(f"{split}-{number:05d}.arrayrecord.json")
        return write_packed(plan, split, number, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(writer.ShardPlan, "write_packed", killed)
    with pytest.raises(KeyboardInterrupt):
        data.make_caches()
    assert not Cache.exists(str(url))

    another_host()
    again: list[str] = []

    def counted(plan: writer.ShardPlan, split: str, number: int, **rest: object) -> int:
        again.append(f"{split}-{number:05d}.arrayrecord.json")
        return write_packed(plan, split, number, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(writer.ShardPlan, "write_packed", counted)
    (resumed,) = data.make_caches()
    assert not {*again} & {*written}
    assert resumed.manifest == whole.manifest
    found = {name: info["size"] for name, info in storage.files_below(str(url)).items()}
    assert found == expected

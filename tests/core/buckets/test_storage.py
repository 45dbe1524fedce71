"""Files in buckets, on servers with the interfaces of Google Cloud Storage and S3."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import emulators
import faulty_proxy
import pytest

from t5x_like.core import whole_files
from t5x_like.core.buckets import downloads, storage
from t5x_like.core.buckets.storage import StorageError


def test_objects_are_written_found_read_moved_and_removed(bucket: str) -> None:
    contents = {f"a/{i}.txt": bytes([65 + i]) * (i + 1) for i in range(3)}
    for name, content in contents.items():
        storage.write(f"{bucket}/{name}", content)
    found = storage.glob(f"{bucket}/a/*.txt")
    assert [(one.url, one.size) for one in found] == [
        (f"{bucket}/{name}", len(content)) for name, content in contents.items()
    ]
    assert len({one.version for one in found}) == 3
    assert storage.read_pieces(found[1:], [(0, 1), (1, 3)]) == [b"B", b"CC"]
    assert [one.open().read() for one in found] == [*contents.values()]
    storage.move(f"{bucket}/a", f"{bucket}/b/c")
    assert [*storage.files_below(bucket)] == ["b/c/0.txt", "b/c/1.txt", "b/c/2.txt"]
    assert storage.read(f"{bucket}/b/c/2.txt") == b"CCC"
    storage.remove(f"{bucket}/b")
    assert storage.files_below(bucket) == {}
    assert storage.info_of(f"{bucket}/b/c/2.txt") is None


def test_a_file_is_in_the_bucket_whole_or_not_at_all(bucket: str) -> None:
    path = storage.path(f"{bucket}/notes.txt")

    def fail() -> None:
        with whole_files.writing(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not path.exists()
    whole_files.write(path, b"all")
    assert path.read_bytes() == b"all"


def test_a_download_is_checked(bucket: str, tmp_path: Path) -> None:
    url, content = f"{bucket}/weights", b"0123456789"
    storage.write(url, content)
    digest = hashlib.sha256(content).hexdigest()
    downloads.download(url, tmp_path / "good", size=10, sha256=digest)
    assert (tmp_path / "good").read_bytes() == content
    for size, sha256, why in [(11, None, "10 bytes long"), (10, "0" * 64, "damaged")]:
        with pytest.raises(StorageError, match=why):
            downloads.download(url, tmp_path / "bad", size=size, sha256=sha256)
    assert [file.name for file in tmp_path.iterdir()] == ["good"]


@pytest.mark.parametrize("kind", ["gs", "s3"])
def test_requests_that_fail_now_and_then_are_repeated(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package in emulators.NEEDS[kind]:
        pytest.importorskip(package)
    port = emulators.free_port()
    seen = f"http://127.0.0.1:{port}"
    served = emulators.s3() if kind == "s3" else emulators.gcs(tmp_path / "gcs", seen_as=seen)
    with served as url, faulty_proxy.faulty(url, port=port, every=0) as proxy:
        emulators.make_bucket(kind, url, "flaky")
        for variable, value in emulators.variables(kind, seen).items():
            monkeypatch.setenv(variable, value)
        emulators.forget()
        proxy.every = 3
        contents = {f"{i}.bin": bytes([i]) * 100_000 for i in range(4)}
        for name, content in contents.items():
            storage.write(f"{kind}://flaky/x/{name}", content)
        for name, content in contents.items():
            downloads.download(f"{kind}://flaky/x/{name}", tmp_path / name, size=len(content))
            assert (tmp_path / name).read_bytes() == content
        assert [*storage.files_below(f"{kind}://flaky/x")] == [*contents]
        assert proxy.done.keys() == {"503", "429", "cut"}


def test_what_a_store_refuses_is_an_error_of_ours(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, _ = storage.filesystem(bucket)

    def refuse(*args: object, **options: object) -> None:
        raise RuntimeError("Forbidden, 403\nmore of it")

    monkeypatch.setattr(fs, "pipe_file", refuse)
    with pytest.raises(StorageError, match=r"/notes: Forbidden, 403$"):
        storage.write(f"{bucket}/notes", b"text")
    with pytest.raises(StorageError, match="can be read but not written"):
        storage.check_writable(bucket)


def test_a_missing_bucket_is_said_to_be_missing(bucket: str) -> None:
    """Whether it is to be read or written: not that rights are missing, or that it is empty."""
    missing = f"{bucket.partition('://')[0]}://no-such-bucket"
    for use in (storage.path, storage.glob, storage.check_writable):
        emulators.forget()
        with pytest.raises(StorageError, match=f"^{missing} does not exist: make it, or mend"):
            use(f"{missing}/runs/mine")


def test_missing_credentials_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    emulators.forget()
    with pytest.raises(StorageError, match="AWS_PROFILE"):
        storage.path("s3://somebody-elses/run")


def test_a_bucket_that_does_not_answer_is_given_up() -> None:
    with pytest.raises(TimeoutError, match=r"0.1 seconds"):
        storage.within(0.1, threading.Event().wait)


def test_an_unknown_kind_of_address_is_refused() -> None:
    with pytest.raises(StorageError, match="nosuch"):
        storage.path("nosuch://place/run")


def test_a_run_has_no_place_on_other_stores() -> None:
    with pytest.raises(StorageError, match="gs:// and s3:// alone"):
        storage.path("memory://somewhere/run")

"""Sends files that are written on this disk to the bucket that they belong to."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from t5x_like.core import partial_files, whole_files
from t5x_like.core.buckets import staging, storage

_SECONDS = 5.0
_OWN = (whole_files.SUFFIX, partial_files.SUFFIX, staging.VERSION)
"""The endings of names of files that are not whole, or that are about others."""


@contextlib.contextmanager
def written(named: str | os.PathLike) -> Iterator[Path]:
    """The place on this disk for a file or folder that the block writes to what a user names.

    Raises:
      StorageError: a bucket cannot be written; this is known before the block.
    """
    path = staging.local(named)
    if storage.is_url(named):
        storage.check_writable(str(named).rstrip("/").rpartition("/")[0])
        path.parent.mkdir(parents=True, exist_ok=True)
    with to_bucket(path):
        yield path


@contextlib.contextmanager
def to_bucket(path: Path, *, last: Sequence[str] = ()) -> Iterator[None]:
    """Copies to the bucket what the block writes to a file or folder.

    Files of a folder are sent as soon as they are whole, so that work that is killed goes on from
    the bucket, on any host: those without the ending `.json` before the others. Paths that are no
    copies are left alone.

    Args:
      path: the file or folder.
      last: names of files that are sent at the end. A folder without them is unfinished: they are
        removed from the bucket at the beginning, and at the end all that the folder does not have.

    Raises:
      StorageError: the bucket cannot be written.
    """
    url = staging.address(path)
    if url is None:
        yield
        return
    for name in last:
        storage.remove(f"{url}/{name}")
    with Sender(path, url, last=last) as sender:
        yield
    sender.send()
    if not last or not path.is_dir():
        return
    here = {*sender.names(), *last}
    for name in storage.files_below(url):
        if name not in here:
            storage.remove(f"{url}/{name}")


class Sender:
    """Sends files of a folder (or one file) that are new or changed, now and then in a thread.

    Args:
      path: the folder or file.
      url: where it goes in the bucket.
      seconds: the pause between two times; None for that of `to_bucket`.
      last: names of files that `send` alone sends, after all others.
    """

    def __init__(
        self, path: Path, url: str, *, seconds: float | None = None, last: Sequence[str] = ()
    ) -> None:
        self._path, self._url, self._last = path, url, last
        self._sent: dict[str, tuple[int, int]] = {}
        self._seconds = _SECONDS if seconds is None else seconds
        self._ended = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"send {url}")

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def send(self) -> None:
        """Sends what is new now.

        Raises:
          StorageError, OSError: the bucket cannot be written.
        """
        if self._path.is_file():
            _upload(self._path, self._url)
            return
        self._send(self.names())
        self._send([name for name in self._last if (self._path / name).is_file()])

    def names(self) -> list[str]:
        """The names of whole files, the `.json` of each after what it describes."""
        names = [
            str(file.relative_to(self._path))
            for file in self._path.rglob("*")
            if file.is_file() and not file.name.startswith(".") and not file.name.endswith(_OWN)
        ]
        return sorted({*names} - {*self._last}, key=lambda name: (name.endswith(".json"), name))

    def _run(self) -> None:
        # What fails here is sent by the next `send`, which raises.
        with contextlib.suppress(Exception):
            self._sent |= self._known()
        while not self._ended.wait(self._seconds):
            with contextlib.suppress(Exception):
                if self._path.is_dir():
                    self._send(self.names())

    def _known(self) -> dict[str, tuple[int, int]]:
        """The files that the bucket has as they are here, each with its size and time."""
        stamps = {}
        for name, info in storage.files_below(self._url).items():
            file = self._path / name
            if staging.is_copy(file, storage.version(info)):
                stamps[name] = (file.stat().st_size, file.stat().st_mtime_ns)
        return stamps

    def _send(self, names: Sequence[str]) -> None:
        with self._one_at_a_time:
            for name in names:
                file = self._path / name
                try:
                    stat = file.stat()
                except FileNotFoundError:  # the writer has removed it
                    continue
                stamp = (stat.st_size, stat.st_mtime_ns)
                if self._sent.get(name) != stamp:
                    _upload(file, f"{self._url}/{name}")
                    self._sent[name] = stamp


def _upload(file: Path, url: str) -> None:
    before = file.stat()
    storage.upload(url, file)
    after = file.stat()
    # A file that grew meanwhile is sent again.
    if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
        staging.note_copy(file, storage.version(storage.info_of(url) or {}))

"""Files that are either absent or complete, whenever the process that writes them is killed."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from etils import epath

from t5x_like.core.buckets import storage

SUFFIX = ".tmp"
"""The name ending of a file that a killed writer leaves; no other file has it."""


def temporary_name(path: Any) -> Any:
    """A name beside `path` that no other process takes."""
    return path.with_name(f"{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}{SUFFIX}")


@contextlib.contextmanager
def writing(path: Path | epath.Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` once the block has ended without an error.

    On a disk, the bytes arrive before the name does; to a bucket they go at the end, in one object.
    Several processes may write one file at once.

    Raises:
      OSError: it cannot be written; nothing is left of it.
    """
    if storage.is_url(path):
        with tempfile.NamedTemporaryFile() as local:
            yield local
            local.flush()
            storage.upload(str(path), Path(local.name))
        return
    temporary = temporary_name(path)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: Path | epath.Path, content: bytes) -> None:
    """Writes a file whole; its folder must be there.

    Raises:
      OSError: it cannot be written.
    """
    with writing(path) as file:
        file.write(content)


def check_writable(directory: Path | epath.Path) -> None:
    """Makes a folder and, for a moment, a file in it; several processes may do so at once.

    Raises:
      OSError: one of the two failed.
      StorageError: a bucket does not answer, or may not be written.
    """
    if storage.is_url(directory):
        storage.check_writable(str(directory))
        return
    directory.mkdir(parents=True, exist_ok=True)
    probe = temporary_name(directory / ".writable")
    probe.write_bytes(b"")
    probe.unlink()

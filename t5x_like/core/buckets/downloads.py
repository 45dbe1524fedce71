"""Copies of objects from a bucket to files of this disk, each whole and checked."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_like.core import whole_files
from t5x_like.core.buckets import storage
from t5x_like.core.buckets.storage import StorageError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_TRIES = 5
_PART = 32 << 20


def download(
    url: str,
    local: Path,
    *,
    size: int,
    sha256: str | None = None,
    arrived: Callable[[int], None] = lambda count: None,
) -> None:
    """Copies an object to a file, which appears whole, checked, or not at all.

    Args:
      url: the address of the object.
      local: the file; its folder must be there.
      size: the bytes that it must have.
      sha256: the digest that it must have; None for any.
      arrived: called with the number of bytes of each part.

    Raises:
      StorageError: the object is another one, or it cannot be read.
    """
    fs, inside = storage.filesystem(url)
    info = storage.info_of(url)
    if info is None or info["size"] != size:
        has = "missing" if info is None else f"{info['size']:,} bytes long"
        raise StorageError(f"{url} is {has}, not {size:,} bytes: it is damaged or was replaced")
    partial = whole_files.temporary_name(local)
    digest, done = hashlib.sha256(), 0
    try:
        with partial.open("wb") as file:
            while done < size:
                part = _part(fs, inside, done, min(done + _PART, size))
                if not part:
                    break
                file.write(part)
                digest.update(part)
                done += len(part)
                arrived(len(part))
            file.flush()
            os.fsync(file.fileno())
        if done != size:
            raise StorageError(f"{url} ended after {done:,} of {size:,} bytes")
        if sha256 is not None and digest.hexdigest() != sha256:
            raise StorageError(f"{url} is damaged: its SHA-256 is not {sha256[:16]}...")
        partial.replace(local)
    finally:
        partial.unlink(missing_ok=True)


def _part(fs: AbstractFileSystem, inside: str, start: int, end: int) -> bytes:
    """Some bytes of an object; a connection that breaks is tried again."""
    for tried in range(_TRIES):
        try:
            return fs.cat_file(inside, start=start, end=end)
        except FileNotFoundError:
            raise
        except Exception as error:
            if tried == _TRIES - 1:
                raise StorageError(f"{fs.unstrip_protocol(inside)}: {error}") from error
            time.sleep(0.5 * 2**tried)
    raise AssertionError

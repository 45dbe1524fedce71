"""One writer at a time: a lock on a cache directory that dies with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from t5x_like.data.cache_format import CacheError

_LOCK = ".writing"


@contextlib.contextmanager
def sole_writer(directory: Path) -> Iterator[None]:
    """Holds `directory` (made if missing) for writing.

    The kernel drops the lock when its holder ends, however it ends: nothing stale is left.

    Raises:
      CacheError: the directory cannot be written, or another process is writing this cache.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / _LOCK).open("a+")
    except OSError as error:
        raise CacheError(
            f"cannot write the cache directory {directory} ({error.strerror}); name one that "
            "you can write"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise CacheError(
                f"{holder} is writing the cache {directory}; wait until it is done or stop it"
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield

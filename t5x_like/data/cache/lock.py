"""A lock that lets one process write at a time, and that ends with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from t5x_like.core import whole_files
from t5x_like.data.cache.format import CacheError
from t5x_like.data.cache.workers import check_main_guard


class HeldError(RuntimeError):
    """Another process holds a lock; the message names the process."""


@contextlib.contextmanager
def sole_writer(directory: Path, *, lock: str = ".writing", wait: bool = True) -> Iterator[None]:
    """Locks `directory` (made if missing) for writing, once no other process holds the lock.

    A process that waits prints the holder's name. After the wait, the files that it wanted to write
    may exist. The kernel drops the lock when its holder ends in any way, so no stale lock remains.

    Args:
      directory: a cache, or a folder of several files, each of which has a lock.
      lock: the name of the lock file.
      wait: whether to wait for another holder; otherwise this raises.

    Raises:
      CacheError: the directory cannot be written.
      HeldError: another process holds the lock, and `wait` is False.
    """
    check_main_guard()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        opener = whole_files.not_through_link
        file = open(directory / lock, "a+", opener=opener)  # noqa: SIM115
    except OSError as error:
        raise CacheError(
            f"cannot write the cache directory {directory}: "
            + whole_files.refusal(error, otherwise="name a directory that you can write")
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            if not wait:
                raise HeldError(holder) from None
            print(f"waiting for {holder}, which holds {directory / lock}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise CacheError(
                f"cannot lock {directory / lock} ({error.strerror}); name a directory on a file "
                "system that has locks with --cache_dir, $T5X_LIKE_CACHE or --gin.CACHE_DIR"
            ) from error
        with whole_files.naming(directory / lock):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        yield

"""One writer at a time: a lock on what is made once, which dies with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from t5x_like.data.cache.format import CacheError
from t5x_like.data.cache.workers import check_main_guard


class HeldError(RuntimeError):
    """Another process holds a lock; the message says which."""


@contextlib.contextmanager
def sole_writer(directory: Path, *, lock: str = ".writing", wait: bool = True) -> Iterator[None]:
    """Holds `directory` (made if missing) for writing, once nobody else does.

    Who waits says for whom; what it finds then may be what it was to write. The kernel drops the
    lock when its holder ends, however it ends: nothing stale is left.

    Args:
      directory: a cache, or a folder in which things are made that each have a lock.
      lock: name of the file that is locked.
      wait: for another holder, rather than to raise.

    Raises:
      CacheError: the directory cannot be written.
      HeldError: another process holds it, and it is not to be waited for.
    """
    check_main_guard()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / lock).open("a+")
    except OSError as error:
        raise CacheError(
            f"cannot write the cache directory {directory} ({error.strerror}); name one that "
            "you can write"
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
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield

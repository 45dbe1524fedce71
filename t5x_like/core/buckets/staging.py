"""Copies on this host's disk of what lies in buckets, shared by the processes of the host.

The copy of `gs://bucket/key` is `<folder>/gs/bucket/key`. Code that reads and writes files there
needs to know nothing of buckets: it calls `fetch` before it looks, and `sending.to_bucket` while it
writes. Both do nothing for other paths.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from t5x_like.core import whole_files
from t5x_like.core.buckets import downloads, storage

FOLDER = "T5X_LIKE_STAGE"
"""The variable that names the folder of the copies."""
LIMIT = "T5X_LIKE_STAGE_GB"
"""The variable with the gigabytes that the copies may have; without it, the room on the disk."""

VERSION = ".version"
"""The ending of the name of a note beside a copy."""
_LOCKS = ".locks"
_IN_USE = ".in_use"
_SPARE = 1 << 30
"""Bytes of the disk that copies leave free."""
_held: dict[Path, int] = {}
"""The descriptors of the locks that this process keeps until it ends."""


def folder() -> Path:
    """The folder of the copies, `$T5X_LIKE_STAGE` or `~/.cache/t5x_like/staged`."""
    named = os.environ.get(FOLDER) or "~/.cache/t5x_like/staged"
    return Path(named).expanduser().absolute()


def local(named: str | os.PathLike) -> Path:
    """The place on this disk of what a user names: a path as it is, or where its copy goes."""
    if not storage.is_url(named):
        return Path(named)
    protocol, _, rest = str(named).partition("://")
    return folder() / protocol / rest.strip("/")


def address(path: Path) -> str | None:
    """The address of what `path` is a copy of; None for other paths."""
    try:
        parts = path.absolute().relative_to(folder()).parts
    except ValueError:
        return None
    if len(parts) < 2 or parts[0] == _LOCKS:
        return None
    return f"{parts[0]}://{'/'.join(parts[1:])}"


def with_addresses(text: str) -> str:
    """The text with the addresses of objects in place of the paths of their copies."""
    return re.sub(rf"{re.escape(str(folder()))}/(\w[\w.+-]*)/", r"\1://", text)


@contextlib.contextmanager
def naming_addresses() -> Iterator[None]:
    """Adds the addresses to an error that names copies; also a decorator."""
    try:
        yield
    except Exception as error:
        if (text := with_addresses(str(error))) != str(error):
            error.add_note(f"The addresses: {text}")
        raise


def known_as(path: Path) -> str:
    """The user's name of a place: its address if it is a copy."""
    return address(path) or str(path)


def fetched(named: str | os.PathLike) -> Path:
    """The place on this disk of what a user names; that of an address has its newest content."""
    path = local(named)
    if storage.is_url(named):
        fetch(path)
    return path


def fetch(path: Path) -> None:
    """Copies what the bucket has in place of `path`: a file, or all files of a folder.

    Raises:
      StorageError: the bucket cannot be read.
    """
    url = address(path)
    if url is None:
        return
    info = storage.info_of(url)
    if info is None:
        return
    if info["type"] == "file":
        _fetch_version(path, url, info["size"], storage.version(info))
        return
    for name, object_info in storage.files_below(url).items():
        _fetch_version(
            path / name, f"{url}/{name}", object_info["size"], storage.version(object_info)
        )


def fetch_file(
    path: Path,
    *,
    size: int,
    sha256: str,
    arrived: Callable[[int], None] = lambda count: None,
) -> None:
    """Copies one file whose content is known, unless it is there or `path` is not a copy.

    Raises:
      StorageError: the object is missing, is another one or cannot be read.
    """
    url = address(path)
    if url is None or _has(path, size):
        return
    with _sole(path):
        if not _has(path, size):
            downloads.download(url, path, size=size, sha256=sha256, arrived=arrived)


def _fetch_version(path: Path, url: str, size: int, version: str) -> None:
    with _sole(path):
        if not is_copy(path, version):
            downloads.download(url, path, size=size)
            note_copy(path, version)


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def is_copy(path: Path, version: str) -> bool:
    """Whether a file is what was copied to or from an object of this version, unchanged since."""
    try:
        return _noted(path).read_text(encoding="utf-8") == _note(path, version)
    except OSError:
        return False


def note_copy(path: Path, version: str) -> None:
    """Notes that a file is equal to an object of this version."""
    whole_files.write(_noted(path), _note(path, version).encode())


def _noted(path: Path) -> Path:
    return path.with_name(f".{path.name}{VERSION}")


def _note(path: Path, version: str) -> str:
    stat = path.stat()
    return f"{version} {stat.st_size} {stat.st_mtime_ns}"


@contextlib.contextmanager
def _sole(path: Path) -> Iterator[None]:
    """Lets one process of this host at a time copy a file; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = folder() / _LOCKS / path.absolute().relative_to(folder())
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.with_name(f"{lock.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remote_bytes(path: Path) -> bytes | None:
    """The bytes that the bucket has in place of `path`; None if it has none."""
    url = address(path)
    assert url is not None
    try:
        return storage.read(url)
    except FileNotFoundError:
        return None


def hold(directory: Path) -> None:
    """Keeps a copied folder on the disk until this process ends."""
    if address(directory) is None or directory in _held:
        return
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / _IN_USE, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.utime(directory / _IN_USE)
    _held[directory] = descriptor


def clear(directory: Path) -> None:
    """Removes a copied folder that no process holds; this process may hold it.

    Raises:
      StorageError: another process uses it.
    """
    if directory in _held:
        os.close(_held.pop(directory))
    if not _remove_unused(directory):
        raise StorageInUseError(
            f"{address(directory)} has changed, and another process of this host uses its earlier "
            "content: end that process first"
        )


class StorageInUseError(storage.StorageError):
    """A copy would change under a process that uses it."""


def _remove_unused(directory: Path) -> bool:
    if not directory.exists():
        return True
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _IN_USE).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        shutil.rmtree(directory)
    return True


def make_room(needed: int) -> None:
    """Removes the copied folders used longest ago until `needed` bytes have room.

    Raises:
      StorageError: there is no room although nothing unused is left.
    """
    room = _room()
    if needed <= room:
        return
    unused = sorted(folder().rglob(_IN_USE), key=lambda file: file.stat().st_mtime)
    for file in unused:
        if file.parent not in _held and _remove_unused(file.parent):
            room = _room()
            if needed <= room:
                return
    raise storage.StorageError(
        f"no room for {needed / 1e9:.1f} GB of copies in {folder()}: {max(room, 0) / 1e9:.1f} GB "
        f"are left. Name a folder on a larger disk with ${FOLDER}, or raise ${LIMIT} if it is set"
    )


def _room() -> int:
    where = folder()
    where.mkdir(parents=True, exist_ok=True)
    room = shutil.disk_usage(where).free - _SPARE
    limit = os.environ.get(LIMIT)
    if limit is None:
        return room
    try:
        most = float(limit) * 1e9
    except ValueError:
        raise storage.StorageError(
            f"${LIMIT} must be a number of gigabytes, not {limit!r}"
        ) from None
    used = sum(file.stat().st_size for file in where.rglob("*") if file.is_file())
    return min(room, int(most) - used)

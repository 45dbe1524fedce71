"""Copies on this host's disk of what lies in buckets, shared by the processes of the host.

The copy of `gs://bucket/key` is `<folder>/gs/bucket/key`. Code that reads and writes files there
needs to know nothing of buckets: it calls `fetch` before it looks and `sending` while it writes,
which do nothing for other paths.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from t5x_like.core import storage, whole_files

FOLDER = "T5X_LIKE_STAGE"
"""The variable that names the folder of the copies."""
LIMIT = "T5X_LIKE_STAGE_GB"
"""The variable with the gigabytes that the copies may have; without it, the room on the disk."""

_VERSION = ".version"
_LOCKS = ".locks"
_IN_USE = ".in_use"
_SPARE = 1 << 30
"""Bytes of the disk that copies leave free."""
_SEND_SECONDS = 5.0
_OWN = (whole_files.SUFFIX, _VERSION)
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


@contextlib.contextmanager
def written(named: str | os.PathLike) -> Iterator[Path]:
    """The place on this disk for a file or folder that the block writes to what a user names.

    Raises:
      StorageError: a bucket cannot be written; this is known before the block.
    """
    path = local(named)
    if storage.is_url(named):
        storage.check_writable(str(named))
        path.parent.mkdir(parents=True, exist_ok=True)
    with sending(path):
        yield path


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
    for name, found in storage.files_below(url).items():
        _fetch_version(path / name, f"{url}/{name}", found["size"], storage.version(found))


def fetch_file(
    path: Path,
    *,
    size: int,
    sha256: str,
    arrived: Callable[[int], None] = lambda count: None,
) -> None:
    """Copies one file whose content is known, unless it is there or `path` is no copy.

    Raises:
      StorageError: the object is missing, is another one or cannot be read.
    """
    url = address(path)
    if url is None or _has(path, size):
        return
    with _sole(path):
        if not _has(path, size):
            storage.download(url, path, size=size, sha256=sha256, arrived=arrived)


def _fetch_version(path: Path, url: str, size: int, version: str) -> None:
    mark = _mark(path)
    with _sole(path):
        if _has(path, size) and mark.exists() and mark.read_text() == version:
            return
        storage.download(url, path, size=size)
        whole_files.write(mark, version.encode())


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _mark(path: Path) -> Path:
    return path.with_name(f".{path.name}{_VERSION}")


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


@contextlib.contextmanager
def sending(path: Path, *, last: Sequence[str] = ()) -> Iterator[None]:
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
    url = address(path)
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
      seconds: the pause between two times; None for that of `sending`.
      last: names of files that `send` alone sends, after all others.
    """

    def __init__(
        self, path: Path, url: str, *, seconds: float | None = None, last: Sequence[str] = ()
    ) -> None:
        self._path, self._url, self._last = path, url, last
        self._sent: dict[str, tuple[int, int]] = {}
        self._seconds = _SEND_SECONDS if seconds is None else seconds
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
            storage.upload(self._path, self._url)
            whole_files.write(_mark(self._path), _version(self._url).encode())
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
        found = {}
        for name, info in storage.files_below(self._url).items():
            file, mark = self._path / name, _mark(self._path / name)
            if file.is_file() and mark.is_file() and mark.read_text() == storage.version(info):
                found[name] = (file.stat().st_size, file.stat().st_mtime_ns)
        return found

    def _send(self, names: Sequence[str]) -> None:
        with self._one_at_a_time:
            for name in names:
                file = self._path / name
                try:
                    found = file.stat()
                except FileNotFoundError:  # the writer has removed it
                    continue
                stamp = (found.st_size, found.st_mtime_ns)
                if self._sent.get(name) != stamp:
                    storage.upload(file, f"{self._url}/{name}")
                    whole_files.write(_mark(file), _version(f"{self._url}/{name}").encode())
                    self._sent[name] = stamp


def _version(url: str) -> str:
    return storage.version(storage.info_of(url) or {})


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
            f"content in {directory}: end that process first"
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

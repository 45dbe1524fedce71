"""Files and folders that are absent or complete, whenever their writer is killed or fails.

Also what an error of the system says: which file it was, and what its user can do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from etils import epath
from numpy.lib import format as npy

from t5x_like.core.buckets import storage

SUFFIX = ".tmp"
"""The name ending of a file that a killed writer leaves; no other file has it."""


class LinkError(OSError):
    """A file to be written would leave its directory through a link."""


FULL = (errno.ENOSPC, errno.EDQUOT)
"""The numbers of errors that say that there is no room."""
_PERMISSIONS = "mend the permissions, or name another place"
_DISK = "that disk fails (`dmesg` says how): mend it, or name another place"
_OPEN = "raise the limit of open files (`ulimit -n`), or take fewer DATA_WORKERS or --workers"
ADVICE: Mapping[int, str] = {
    errno.ENOSPC: "make room on that disk (`df -h` and `df -i` show it), and run the command again",
    errno.EDQUOT: "make room in your quota on that disk (`quota -s`), and run the command again",
    errno.EROFS: "that disk is read-only, often after an error (`dmesg`): mend it, or name another",
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.EIO: _DISK,
    errno.ESTALE: _DISK,
    errno.EMFILE: _OPEN,
    errno.ENFILE: _OPEN,
    errno.EFBIG: "raise the limit of the size of files (`ulimit -f`), or name another disk",
}
"""Advice on an error of the system, by its number."""

_LEFT = re.compile(rf"\.\d+-[0-9a-f]{{8}}{re.escape(SUFFIX)}")


def temporary_name(path: Any) -> Any:
    """A name beside `path` that no other process takes."""
    return path.with_name(path.name + _ending())


def _ending() -> str:
    return f".{os.getpid()}-{uuid.uuid4().hex[:8]}{SUFFIX}"


@contextlib.contextmanager
def writing(path: Path | epath.Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` once the block has ended without an error.

    On a disk, the bytes arrive before the name does; to a bucket they go at the end, in one object.
    Several processes may write one file at once. What killed writers left of it is removed.

    Raises:
      OSError: it cannot be written; nothing is left of it.
    """
    if storage.is_url(path):
        with tempfile.NamedTemporaryFile() as local:
            yield local
            local.flush()
            storage.upload(str(path), Path(local.name))
        return
    _remove_left(path)
    temporary = temporary_name(path)
    try:
        with naming(path):
            with _opened(temporary) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        remove(temporary)


def _opened(temporary: Path | epath.Path) -> IO[bytes]:
    """A new file that is locked while it is open, where the file system has locks."""
    while True:
        file = open(temporary, "wb")  # noqa: SIM115
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another writer took it for one that was left


def _remove_left(path: Path | epath.Path) -> None:
    """Removes the unfinished files of `path` whose writers have been killed."""
    with contextlib.suppress(OSError):
        for left in os.scandir(path.parent):
            if left.name.startswith(path.name) and _LEFT.fullmatch(left.name[len(path.name) :]):
                with contextlib.suppress(OSError), open(left.path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while it is written
                    os.unlink(left.path)


@contextlib.contextmanager
def output(path: Path | epath.Path) -> Iterator[IO[bytes]]:
    """Like `writing`, for a file that a user names: links and devices are written where they are.

    One is /dev/stdout, whose place no file may take.

    Raises:
      OSError: it cannot be written.
    """
    if os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path)):
        with naming(path), open(path, "wb") as file:
            yield file
    else:
        with writing(path) as file:
            yield file


def remove(path: Path | epath.Path) -> None:
    """Removes a file that is not whole, if it is there and the disk still allows it."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: epath.PathLike) -> Iterator[None]:
    """Names a path in errors of the system that name none, or one that is there for a moment only.

    Raises:
      OSError: in place of that of the block, or of a library's own error that tells of one.
    """
    try:
        yield
    except Exception as error:
        if (number := _number(error)) is None:
            raise
        names = [getattr(error, name, None) for name in ("filename2", "filename")]
        named = next(filter(None, names), os.fspath(path))
        known = os.fsdecode(named) if isinstance(named, str | bytes) else str(path)
        raise OSError(number, os.strerror(number), with_lasting_names(known)) from error


def with_lasting_names(text: str) -> str:
    """A text in which files and folders in the making have the names that they are to get."""
    return _LEFT.sub("", text)


def error_number(error: BaseException | None) -> int | None:
    """The number in `ADVICE` of the error of the system that an error is, tells of, or follows."""
    return next((number for cause in chain(error) if (number := _number(cause)) in ADVICE), None)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it follows, which are a circle where threads raise one again."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def refusal(error: OSError, *, otherwise: str = "") -> str:
    """The system's message and advice for its number, or the error's own text and `otherwise`."""
    number = error_number(error)
    advice = otherwise if number is None else ADVICE[number]
    message = str(error) if number is None else os.strerror(number)
    return ": ".join(filter(None, [message, advice]))


def _number(error: BaseException) -> int | None:
    """The number of an error of the system; that of its words, where a library gives no number.

    Libraries in C++ and Rust, such as ArrayRecord and TensorStore, raise errors of other kinds.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if type(error).__module__.partition(".")[0] == "t5x_like":
        return None
    return next((number for number in ADVICE if os.strerror(number) in str(error)), None)


def write(path: Path | epath.Path, content: bytes) -> None:
    """Writes a file whole; its folder must be there.

    Raises:
      OSError: it cannot be written.
    """
    with writing(path) as file:
        file.write(content)


def write_array(file: IO[bytes], array: np.ndarray) -> None:
    """Writes an array as `.npy`, like `np.save`, whose errors do not say what the system said."""
    array = np.ascontiguousarray(array)
    npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(array))
    file.write(array.data)


@contextlib.contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """An empty folder beside `path`, removed at the end; removes those that killed writers left.

    Raises:
      OSError: it cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.iterdir():
        if _LEFT.fullmatch(left.name.removeprefix(path.name)) and not _is_held(left):
            shutil.rmtree(left, ignore_errors=True)
    folder: Path = temporary_name(path)
    try:
        with naming(path):
            folder.mkdir()
            with _held(folder):
                yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def writing_folder(path: Path) -> Iterator[Path]:
    """A folder that takes the name `path` once the block has ended without an error.

    Raises:
      OSError: it cannot be made, or `path` is a file or has files in it.
    """
    with temporary_folder(path) as unfinished:
        yield unfinished
        os.replace(unfinished, path)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Locks a folder, where the file system has locks, until this process ends or lets it go."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _is_held(folder: Path) -> bool:
    """Whether a living process writes a folder, or a file system without locks cannot say so."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_json(path: Path | epath.Path) -> dict[str, Any]:
    """The object in a JSON file that anybody may have written or damaged; its values are unchecked.

    Raises:
      OSError: it cannot be read.
      ValueError: it holds no JSON object; the message names it.
    """
    try:
        content = json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError(f"{path} is damaged: its JSON is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path} is damaged, or not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: it holds no JSON object")
    return content


def check_no_link(path: epath.PathLike, *, inside: epath.PathLike) -> None:
    """Checks that writing to a path stays inside of a folder, whose content may be a stranger's.

    Raises:
      LinkError: the path, or a folder between the two, is a link.
    """
    if storage.is_url(path):
        return
    below = Path(path).relative_to(inside).parts
    for end in range(1, len(below) + 1):
        if (place := Path(inside, *below[:end])).is_symlink():
            raise LinkError(
                f"{place} is a link to {os.readlink(place)}: nothing is written through links in "
                "a directory that is opened. Remove the link, or name the place where it leads"
            )


def not_through_link(path: str, flags: int) -> int:
    """An `opener` of `open` that refuses a link in place of a file.

    Raises:
      LinkError: the path is a link.
    """
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LinkError(f"{path} is a link: nothing is written through it") from error
        raise


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
    probe = directory / _ending()
    with naming(directory):
        probe.write_bytes(b"")
        probe.unlink()

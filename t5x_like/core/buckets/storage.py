"""Files in buckets: `gs://`, `s3://` and every other kind of address that fsspec knows.

Buckets have no folders, no appending and no renaming. An object appears whole when its upload ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import queue
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from etils import epath

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")
P = ParamSpec("P")

_ANSWER_SECONDS = 12
_READ_AHEAD = 8 << 20
_CREDENTIALS = {
    "gs": (
        "on Google's machines give the service account the role Storage Object User; elsewhere run "
        "`gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
    ),
    "s3": (
        "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a "
        "role; for other services than Amazon's also AWS_ENDPOINT_URL"
    ),
}
_ALIASES = {"gcs": "gs", "s3a": "s3"}
_DIGESTS = ("sha256", "md5Hash", "crc32c", "ETag", "etag", "content_md5", "checksum")


class StorageError(OSError):
    """A bucket cannot be used; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """An object in a bucket.

    Attributes:
      url: its address.
      size: its bytes.
      version: a text that identifies its content, as far as its store tells.
    """

    url: str
    size: int
    version: str

    def __str__(self) -> str:
        return self.url

    @property
    def suffix(self) -> str:
        """The last extension, with its dot."""
        return PurePosixPath(self.url).suffix

    @property
    def suffixes(self) -> list[str]:
        """All extensions, with their dots."""
        return PurePosixPath(self.url).suffixes

    def open(self) -> Any:
        """A binary file, which is read in large parts."""
        fs, inside = filesystem(self.url)
        return fs.open(inside, "rb", block_size=_READ_AHEAD, cache_type="readahead")


def is_url(path: object) -> bool:
    """Whether a path is an address such as `gs://bucket/runs` and no place on a disk."""
    return "://" in str(path)


def absolute(path: str) -> str:
    """A path that means the same in every folder."""
    return path if is_url(path) else str(Path(path).expanduser().absolute())


def path(named: epath.PathLike) -> epath.Path:
    """The path of what a user names.

    Raises:
      StorageError: it is in a bucket that cannot be used, or no place for a run.
    """
    if is_url(named):
        filesystem(os.fspath(named))
    try:
        return epath.Path(named)
    except KeyError:
        raise StorageError(
            f"{named}: runs and models are read and written on disks, gs:// and s3:// alone"
        ) from None


def filesystem(url: str) -> tuple[AbstractFileSystem, str]:
    """fsspec's file system of an address, and the address without its protocol.

    Raises:
      StorageError: a library or credentials are missing, or the bucket does not answer.
    """
    protocol, _, rest = url.partition("://")
    _answer(protocol, rest.strip("/").partition("/")[0])
    return _filesystem(url)


def _filesystem(url: str) -> tuple[AbstractFileSystem, str]:
    import fsspec

    _load(url.partition("://")[0])
    try:
        return fsspec.core.url_to_fs(url)
    except ValueError as error:
        raise StorageError(f"{url}: {error}") from error


@functools.cache
def _load(protocol: str) -> None:
    """Imports the library of a kind of address."""
    import fsspec

    _without_old_listings()
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        extra = _ALIASES.get(protocol, protocol)
        what = f"pip install 't5x_like[{extra}]'" if extra in _CREDENTIALS else str(error)
        raise StorageError(f"a library for {protocol}:// is missing: {what}") from error
    except ValueError as error:
        raise StorageError(
            f"{protocol}:// is not a kind of address that is known: {error}"
        ) from error


@functools.cache
def _without_old_listings() -> None:
    """Makes file systems cache no listings: other hosts write files after the last one."""
    import fsspec

    for protocol in ("gs", "gcs", "s3", "s3a"):
        fsspec.config.conf.setdefault(protocol, {}).setdefault("use_listings_cache", False)
    # They log what they then raise, with tracebacks.
    for library in ("gcsfs", "s3fs"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


@functools.cache
def _answer(protocol: str, bucket: str) -> None:
    """Asks a bucket once in each process, so that a missing one is an error and no long wait."""
    kind = _ALIASES.get(protocol, protocol)
    if kind not in _CREDENTIALS:
        return
    _load(protocol)
    try:
        within(_ANSWER_SECONDS, lambda: _ask(f"{protocol}://{bucket}"))
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(
            f"{protocol}://{bucket} cannot be read ({_first_line(error)}): does it exist, and may "
            f"you read it? {_CREDENTIALS[kind][0].upper()}{_CREDENTIALS[kind][1:]}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _ask(bucket: str) -> None:
    # The search for credentials, which may take long, begins here too.
    key = uuid.uuid4().hex
    fs, inside = _filesystem(f"{bucket}/{key}")
    try:
        fs.info(inside)
    except FileNotFoundError as error:
        # Of an object that is missing, the key is named.
        if key not in str(error):
            raise StorageError(f"{bucket} does not exist: make it, or mend its name") from error


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of a call that may hang.

    Raises:
      TimeoutError: it has not ended; its thread does not keep the process alive.
    """
    results: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(1)

    def run() -> None:
        try:
            results.put((call(), None))
        except BaseException as error:
            results.put((None, error))

    threading.Thread(target=run, daemon=True, name="bucket").start()
    try:
        result, error = results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} seconds") from None
    if error is not None:
        raise error
    return result


def _with_our_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Libraries have errors of their own kinds for what a store refuses; ours are OSErrors."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except OSError:
            raise
        except Exception as error:
            raise StorageError(f"{args[0]}: {_first_line(error)}") from error

    return wrapped


@_with_our_errors
def glob(pattern: str) -> list[RemoteFile]:
    """The files in a bucket that a pattern matches, sorted; `**` crosses folders."""
    fs, inside = filesystem(pattern)
    infos = fs.glob(inside, detail=True)
    return [
        RemoteFile(fs.unstrip_protocol(name), info["size"], version(info))
        for name, info in sorted(infos.items())
        if info["type"] == "file"
    ]


@_with_our_errors
def read_pieces(files: Sequence[RemoteFile], ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """A range of bytes, from a start to an end, of each file; many are read at once."""
    if not files:
        return []
    fs, _ = filesystem(files[0].url)
    inside = [fs._strip_protocol(file.url) for file in files]
    starts, ends = zip(*ranges, strict=True)
    return list(fs.cat_ranges(inside, list(starts), list(ends), on_error="raise"))


@_with_our_errors
def info_of(url: str) -> dict[str, Any] | None:
    """The store's description of an object or folder; None if there is none."""
    fs, inside = filesystem(url)
    try:
        return dict(fs.info(inside))
    except FileNotFoundError:
        return None


@_with_our_errors
def read(url: str) -> bytes:
    """The bytes of an object.

    Raises:
      FileNotFoundError: there is none.
    """
    fs, inside = filesystem(url)
    return bytes(fs.cat_file(inside))


@_with_our_errors
def files_below(url: str) -> dict[str, dict[str, Any]]:
    """The store's description of each object below an address, by its name from there; sorted."""
    fs, inside = filesystem(url)
    root = inside.strip("/") + "/"
    infos = fs.find(inside, detail=True, withdirs=False)
    return {
        name.lstrip("/").removeprefix(root): info
        for name, info in sorted(infos.items())
        if info["type"] == "file" and name.lstrip("/").startswith(root)
    }


def version(info: Mapping[str, Any]) -> str:
    """A text that identifies an object's content, as far as its store tells."""
    digests = [f"{name}:{info[name]}" for name in _DIGESTS if info.get(name)]
    return digests[0].replace('"', "") if digests else f"mtime:{info.get('mtime')}"


@_with_our_errors
def write(url: str, content: bytes) -> None:
    """Writes an object, which appears whole or not at all."""
    fs, inside = filesystem(url)
    fs.pipe_file(inside, content)


def check_writable(url: str) -> None:
    """Writes a small object below an address, and removes it.

    Raises:
      StorageError: the bucket does not answer, or may not be written.
    """
    fs, inside = filesystem(url)
    probe = f"{inside.rstrip('/')}/.writable-{uuid.uuid4().hex[:8]}"
    try:
        fs.pipe_file(probe, b"-")
        fs.rm_file(probe)
    except Exception as error:
        raise StorageError(
            f"{url} can be read but not written ({_first_line(error)}): give these credentials the "
            "right to make and remove objects there"
        ) from error


@_with_our_errors
def upload(url: str, local: Path) -> None:
    """Writes a file's bytes as an object, which appears whole or not at all."""
    fs, inside = filesystem(url)
    fs.put_file(str(local), inside)


@_with_our_errors
def remove(url: str) -> None:
    """Removes an object, or all below an address; it may be missing."""
    fs, inside = filesystem(url)
    with contextlib.suppress(FileNotFoundError):
        fs.rm(inside, recursive=True)


@_with_our_errors
def move(folder: epath.PathLike, target: epath.PathLike) -> None:
    """Moves a folder; in a bucket, copies all that is below it and then removes it."""
    source, destination = os.fspath(folder).rstrip("/"), os.fspath(target).rstrip("/")
    if not is_url(source):
        Path(destination).parent.mkdir(parents=True, exist_ok=True)
        Path(source).rename(destination)
        return
    fs, _ = filesystem(source)
    for name in files_below(source):
        fs.cp_file(_filesystem(f"{source}/{name}")[1], _filesystem(f"{destination}/{name}")[1])
    remove(source)

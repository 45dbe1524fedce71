"""Tables of integers that are computed once from a split and kept beside its cache.

A table is one file, which is written whole or not at all: the number of its values, the SHA-256 of
their bytes, then the values row by row (int64, little-endian). It is written while it is computed
and mapped when it is read, so that memory is bounded. One process makes a table, while others that
want it wait. Where files have no locks, they write the same bytes, and the last rename wins.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from t5x_like.core import progress, whole_files
from t5x_like.core.buckets import sending, staging
from t5x_like.data.cache.format import CacheError, plan_name
from t5x_like.data.cache.lock import sole_writer

VERSION = 4
"""The version of the file format and of the code with which this package's geometries plan."""
_DTYPE = np.dtype("<i8")
_HEADER = _DTYPE.itemsize + hashlib.sha256().digest_size
_SILENT_SECONDS = 2

Blocks = Callable[[], Iterable[np.ndarray]]


class Described(Protocol):
    """A split from which tables are computed.

    Attributes:
      name: the name of the split.
      directory: the directory of its tables; None keeps them in memory.
      content: a text that differs wherever the records differ.
    """

    @property
    def name(self) -> str: ...

    @property
    def directory(self) -> Path | None: ...

    @property
    def content(self) -> str: ...


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of integers. The pickle of a table in a file holds only its path and width.

    Attributes:
      values: int64 [rows, columns].
      path: the path of the file; None in memory.
    """

    values: np.ndarray
    path: Path | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            return Table, (self.values,)
        return _open_existing, (self.path, self.values.shape[1])


def load_or_make(
    split: Described, what: str, blocks: Blocks, *, columns: int = 1, bar: bool = True
) -> Table:
    """The table called `what`, which is read if it exists, and otherwise made and written.

    Args:
      split: the split from which it is computed.
      what: a text that identifies everything else on which the table depends.
      blocks: makes the rows in blocks, int64 [n, columns] (or [n] for one column).
      columns: the number of columns.
      bar: whether to show how many rows have been made; `blocks` may have a bar of its own.
    """
    planned = functools.partial(_with_bar, split.name, blocks) if bar else blocks
    if split.directory is None:
        return _in_memory(planned(), columns)
    decisive = repr([VERSION, split.content, what])
    key = hashlib.sha256(decisive.encode()).hexdigest()[:16]
    path = split.directory / plan_name(split.name, key)
    staging.fetch(path)
    if table := _open(path, columns):
        return table
    try:
        with _sole_maker(path):
            if table := _open(path, columns):  # another process made it while this one waited
                return table
            with sending.to_bucket(path):
                _write(path, planned())
    except OSError as error:
        _warn(split.directory, error.strerror or str(error))
        return _in_memory(planned(), columns)
    return _open_existing(path, columns)


@contextlib.contextmanager
def _sole_maker(path: Path) -> Iterator[None]:
    """Locks a table, if files have locks there and this process may write."""
    lock = f".{path.name}.lock"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(CacheError):
            stack.enter_context(sole_writer(path.parent, lock=lock))
            # Those that wait for this file find the table; so do those that make another file.
            stack.callback((path.parent / lock).unlink, missing_ok=True)
        yield


def identity(thing: object) -> str:
    """A text that identifies `thing`: its repr, its class and the source of the class's modules.

    An edit of such a module makes another table, and so does another class of the same name.
    """
    kind = type(thing)
    modules = dict.fromkeys(base.__module__ for base in kind.__mro__ if base is not object)
    sources = [_source(module) for module in modules]
    code = hashlib.sha256(repr(sources).encode()).hexdigest()
    return f"{kind.__module__}.{kind.__qualname__} {code} {thing!r}"


def _source(module: str) -> str:
    try:
        return inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):  # typed at a prompt
        return ""


def _with_bar(split: str, blocks: Blocks) -> Iterator[np.ndarray]:
    bar = progress.bar(
        desc=f"planning samples of {split}",
        unit=" rows",
        unit_scale=True,
        delay=_SILENT_SECONDS,
    )
    with bar:
        for block in blocks():
            yield block
            bar.update(len(block))


@functools.cache
def _warn(directory: Path, reason: str) -> None:
    """Warns once for each directory and reason, because a run has several tables."""
    print(
        f"{directory}: the plans for this cache cannot be kept there ({reason}); they are held in "
        "memory, and made again in every process and run",
        file=sys.stderr,
    )


def _in_memory(blocks: Iterable[np.ndarray], columns: int) -> Table:
    rows = [np.reshape(block, (-1, columns)) for block in blocks]
    return Table(np.concatenate([np.zeros((0, columns), np.int64), *rows]))


def _write(path: Path, blocks: Iterable[np.ndarray]) -> None:
    with whole_files.writing(path) as file:
        count, digest = 0, hashlib.sha256()
        file.write(_header(count, digest))
        for block in blocks:
            data = np.asarray(block, _DTYPE).tobytes()
            file.write(data)
            digest.update(data)
            count += block.size
        file.seek(0)
        file.write(_header(count, digest))


def _header(count: int, digest: hashlib._Hash) -> bytes:
    return np.array(count, _DTYPE).tobytes() + digest.digest()


def _open(path: Path, columns: int) -> Table | None:
    """The table in a file; None, with a message where it is damaged, if it cannot be used."""
    table = _open_unchecked(path, columns)
    if table is None:
        return None
    digest = hashlib.sha256(np.ascontiguousarray(table.values).data)
    with path.open("rb") as file:
        if file.read(_HEADER) == _header(table.values.size, digest):
            return table
    print(f"{path} is damaged: its content has changed; it is made again", file=sys.stderr)
    return None


def _open_unchecked(path: Path, columns: int) -> Table | None:
    """The table in a file; None if it is missing, or cut short by a full disk or a crash."""
    try:
        values = np.asarray(np.memmap(path, _DTYPE, mode="r"))
    except (OSError, ValueError):
        return None
    skipped = _HEADER // _DTYPE.itemsize
    if len(values) < skipped or values[0] != len(values) - skipped:
        return None
    return Table(values[skipped:].reshape(-1, columns), path)


def _open_existing(path: Path, columns: int) -> Table:
    """A table that was checked when it was opened first."""
    table = _open_unchecked(path, columns)
    if table is None:
        raise OSError(f"{path} was deleted or damaged while it was in use: start again")
    return table

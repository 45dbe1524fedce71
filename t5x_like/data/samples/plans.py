"""Tables of integers worked out from a split once, and kept beside its cache.

A table is one file, there whole or not at all: the number of its values, then these, row after row
(int64, little-endian). It is written as it is made and mapped when it is read, so that memory is
bounded. Processes that make the same one at once write the same bytes, and the last rename wins.
"""

from __future__ import annotations

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
from t5x_like.data.cache.format import plan_name

_VERSION = 2
"""The format of the file, and of what this package does to plan: its shapes share much of it."""
_DTYPE = np.dtype("<i8")
_SILENT_SECONDS = 2

Blocks = Callable[[], Iterable[np.ndarray]]


class Described(Protocol):
    """What a table is worked out from.

    Attributes:
      name: of the split.
      directory: that keeps its tables; None keeps them in memory.
      content: differs wherever its records do.
    """

    @property
    def name(self) -> str: ...

    @property
    def directory(self) -> Path | None: ...

    @property
    def content(self) -> str: ...


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of integers; one that lies in a file pickles as its address.

    Attributes:
      values: int64 [rows, columns].
      path: of the file; None in memory.
    """

    values: np.ndarray
    path: Path | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            return Table, (self.values,)
        return _opened, (self.path, self.values.shape[1])


def load_or_make(split: Described, what: str, blocks: Blocks, *, columns: int = 1) -> Table:
    """The table called `what`: read if it is there, else made and written.

    Args:
      split: what it is worked out from.
      what: all that decides it besides the split.
      blocks: makes the rows, int64 [n, columns] (or [n] for one column) at a time.
      columns: of the table.
    """
    planned = functools.partial(_with_bar, split.name, blocks)
    if split.directory is None:
        return _in_memory(planned(), columns)
    decisive = repr([_VERSION, split.content, what])
    key = hashlib.sha256(decisive.encode()).hexdigest()[:16]
    path = split.directory / plan_name(split.name, key)
    if table := _open(path, columns):
        return table
    try:
        _write(path, planned())
    except OSError as error:
        _warn(split.directory, error.strerror or str(error))
        return _in_memory(planned(), columns)
    return _opened(path, columns)


def identity(thing: object) -> str:
    """Names what decides a table: its repr, and its class with the source of the modules it is of.

    Whatever is edited there, or another class of its name, makes another table.
    """
    kind = type(thing)
    modules = dict.fromkeys(one.__module__ for one in kind.__mro__ if one is not object)
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
    """Once: a run has several tables."""
    print(
        f"{directory}: what is planned from this cache cannot be kept there ({reason}); it is held "
        "in memory, and planned again in every process and run",
        file=sys.stderr,
    )


def _in_memory(blocks: Iterable[np.ndarray], columns: int) -> Table:
    rows = [np.reshape(block, (-1, columns)) for block in blocks]
    return Table(np.concatenate([np.zeros((0, columns), np.int64), *rows]))


def _write(path: Path, blocks: Iterable[np.ndarray]) -> None:
    with whole_files.writing(path) as file:
        count = 0
        file.write(np.array(count, _DTYPE).tobytes())
        for block in blocks:
            file.write(np.asarray(block, _DTYPE).tobytes())
            count += block.size
        file.seek(0)
        file.write(np.array(count, _DTYPE).tobytes())


def _open(path: Path, columns: int) -> Table | None:
    """The table in a file; None where there is none, or one cut short by a full disk or a crash."""
    try:
        values = np.asarray(np.memmap(path, _DTYPE, mode="r"))
    except (OSError, ValueError):
        return None
    if values[0] != len(values) - 1:
        return None
    return Table(values[1:].reshape(-1, columns), path)


def _opened(path: Path, columns: int) -> Table:
    table = _open(path, columns)
    if table is None:
        raise OSError(f"{path} is gone or damaged while it is in use: start again")
    return table

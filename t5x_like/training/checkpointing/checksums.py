"""SHA-256 of every file of a checkpoint, written beside them and compared later.

Orbax restores flipped bits without an error; the checksums find them. Each process hashes its share
of the files; verification reads the lists of all shares that exist.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from etils import epath

from t5x_like.core import whole_files

_CHUNK = 8 << 20
_PREFIX = "checksums."


def write(directory: epath.Path, *, process: int, processes: int) -> None:
    """Hashes every `processes`-th file below `directory` and writes the list into it."""
    names = sorted(_files(directory))[process::processes]
    sums = {name: [(directory / name).stat().length, _sha256(directory / name)] for name in names}
    final = directory / f"{_PREFIX}{process}of{processes}.json"
    whole_files.write(final, json.dumps(sums, indent=0).encode())


def complete(directory: epath.Path) -> bool:
    """Whether every process has written its list; a process may be killed before it does."""
    lists = _lists(directory)
    return bool(lists) and len(lists) == int(lists[0].stem.rpartition("of")[2])


def verify(
    directory: epath.Path, *, under: str = "", process: int = 0, processes: int = 1
) -> list[str]:
    """Compares this process's share of the listed files whose names begin with `under`.

    Returns:
      Errors, one line for each file; files that no list names are not checked.
    """
    expected: dict[str, list] = {}
    damaged = []
    for path in _lists(directory):
        try:
            expected |= json.loads(path.read_text())
        except ValueError as error:
            damaged.append(f"{path.name}: {error}")
    for name in sorted(name for name in expected if name.startswith(under))[process::processes]:
        path, (size, digest) = directory / name, expected[name]
        if not path.exists():
            damaged.append(f"{name}: missing")
        elif path.stat().length != size:
            damaged.append(f"{name}: {path.stat().length} bytes, not {size}")
        elif _sha256(path) != digest:
            damaged.append(f"{name}: content changed")
    return damaged


def _lists(directory: epath.Path) -> list[epath.Path]:
    return sorted(
        path
        for path in directory.iterdir()
        if path.name.startswith(_PREFIX) and path.suffix == ".json"
    )


def _files(directory: epath.Path, prefix: str = "") -> Iterator[str]:
    """Names of the files below `directory`, relative to it, without our own lists."""
    for path in directory.iterdir():
        if path.is_dir():
            yield from _files(path, f"{prefix}{path.name}/")
        elif not path.name.startswith(_PREFIX):
            yield prefix + path.name


def _sha256(path: epath.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()

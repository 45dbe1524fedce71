"""A digest of every file of a checkpoint, written beside them and compared later.

Orbax restores flipped bits without an error; the checksums find them. On a disk they are SHA-256:
each process hashes its share of the files, and verification reads the lists of all shares that
exist. In a bucket they are what the store itself says of an object, so that nothing is read again.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from t5x_like.core import whole_files
from t5x_like.core.buckets import storage

_CHUNK = 8 << 20
_PREFIX = "checksums."


def write(directory: epath.Path, *, process: int, processes: int) -> None:
    """Hashes every `processes`-th file below `directory` and writes the list into it."""
    files = _sizes_and_digests(directory)
    sums = {name: files[name]() for name in sorted(files)[process::processes]}
    final = directory / f"{_PREFIX}{process}of{processes}.json"
    whole_files.write(final, json.dumps(sums, indent=0).encode())


def remove(directory: epath.Path) -> None:
    """Removes the lists of all processes."""
    for path in _lists(directory):
        path.unlink()


def complete(directory: epath.Path) -> bool:
    """Whether every process has written its list; a process may be killed before it does."""
    return _are_complete(_lists(directory))


def digest(directory: epath.Path, *, under: str) -> str | None:
    """A digest of the listed files whose names begin with `under`; None where a list is missing.

    It follows from the lists alone: a copy of the files with their lists has the same.
    """
    lists = _lists(directory)
    if not _are_complete(lists):
        return None
    listed = [pair for path in lists for pair in _read(path).items() if pair[0].startswith(under)]
    return hashlib.sha256(json.dumps(sorted(listed)).encode()).hexdigest()


def verify(
    directory: epath.Path, *, under: str = "", process: int = 0, processes: int = 1
) -> list[str]:
    """Compares this process's share of the listed files whose names begin with `under`.

    Returns:
      Errors, one line for each file. Where a list is missing, files that no other list names are
      not checked; otherwise all files of items are to be named.
    """
    expected: dict[str, list] = {}
    damaged = []
    lists = _lists(directory)  # once: another process may write its own meanwhile
    for path in lists:
        try:
            expected |= _read(path)
        except ValueError as error:
            damaged.append(f"{path.name}: {error}")
    files = _sizes_and_digests(directory)
    if _are_complete(lists) and not damaged:
        unnamed = sorted(name for name in files if "/" in name and name not in expected)
        damaged += [f"{name}: not in any list" for name in unnamed if name.startswith(under)]
    for name in sorted(name for name in expected if name.startswith(under))[process::processes]:
        size, digest = expected[name]
        if name not in files:
            damaged.append(f"{name}: missing")
            continue
        length, actual = files[name](digest)
        if length != size:
            damaged.append(f"{name}: {length} bytes, not {size}")
        elif actual != digest:
            damaged.append(f"{name}: content changed")
    return damaged


def _read(path: epath.Path) -> dict[str, list]:
    """A list; raises ValueError where it is none."""
    sums = whole_files.read_json(path)
    for pair in sums.values():
        if not isinstance(pair, list) or [type(item) for item in pair] != [int, str]:
            raise ValueError("not a list of sizes and digests")
    return sums


def _lists(directory: epath.Path) -> list[epath.Path]:
    return sorted(
        path
        for path in directory.iterdir()
        if path.name.startswith(_PREFIX) and path.suffix == ".json"
    )


def _are_complete(lists: Sequence[epath.Path]) -> bool:
    return bool(lists) and lists[0].stem.endswith(f"of{len(lists)}")


def _sizes_and_digests(directory: epath.Path) -> dict[str, Callable[..., list]]:
    """A function for each file below a directory, by its name: it gives the size and a digest.

    Its argument is the digest to compare with, which decides the kind; without one, the place does.
    """
    if not storage.is_url(directory):
        return {name: functools.partial(_of_file, directory / name) for name in _files(directory)}
    infos = storage.files_below(str(directory))
    return {
        name: functools.partial(_of_object, directory / name, info)
        for name, info in infos.items()
        if not name.rpartition("/")[2].startswith(_PREFIX)
    }


def _of_file(path: epath.Path, like: str = "") -> list:
    size = path.stat().length
    kind = like.partition(":")[0] if ":" in like else ""
    if kind == "md5Hash":
        digest = base64.b64encode(_digest(path, "md5").digest()).decode()
        return [size, f"{kind}:{digest}"]
    # Other digests of stores do not follow from the content alone: the size has to do.
    return [size, like if kind else _digest(path, "sha256").hexdigest()]


def _of_object(path: epath.Path, info: Mapping[str, Any], like: str = "") -> list:
    version = storage.version(info)
    # A checkpoint that was copied here from a disk or another store has digests of other kinds.
    if like and version.partition(":")[0] != like.partition(":")[0]:
        return _of_file(path, like)
    return [info["size"], version]


def _files(directory: epath.Path, prefix: str = "") -> Iterator[str]:
    """Names of the files below `directory`, relative to it, without our own lists."""
    for path in directory.iterdir():
        if path.is_dir():
            yield from _files(path, f"{prefix}{path.name}/")
        elif not path.name.startswith(_PREFIX):
            yield prefix + path.name


def _digest(path: epath.Path, algorithm: str) -> hashlib._Hash:
    digest = hashlib.new(algorithm)
    with whole_files.naming(path), path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest

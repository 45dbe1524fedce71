"""The files of a corpus, on a disk or in a bucket: those of a pattern, and their digests."""

from __future__ import annotations

import functools
import glob
import hashlib
from collections.abc import Sequence
from pathlib import Path

from t5x_like.core.buckets import storage
from t5x_like.core.buckets.storage import RemoteFile
from t5x_like.data.corpora import registry
from t5x_like.data.corpora.corpus import CorpusError

_CHUNK = 1 << 16
_CHUNKS = 16

File = Path | RemoteFile
"""A file on a disk or in a bucket."""


def pattern(named: str | Path) -> str:
    """A path or pattern as text; `~` is the home directory."""
    return str(named) if storage.is_url(named) else str(Path(named).expanduser())


def matching(patterns: Sequence[str]) -> list[File]:
    """The files that match, in the order of the patterns and then of the paths, each file once.

    Raises:
      CorpusError: a pattern matches no file.
      StorageError: a bucket cannot be read.
    """
    by_identity: dict[object, File] = {}
    for pattern_ in patterns:
        files = _in_bucket(pattern_) if storage.is_url(pattern_) else _on_disk(pattern_)
        for file in files:
            by_identity.setdefault(identity(file), file)
    return list(by_identity.values())


def identity(file: File) -> object:
    """The identity of a file, which is equal for two names of the same file."""
    return file.resolve() if isinstance(file, Path) else file.url


def _on_disk(pattern: str) -> list[File]:
    # A name with brackets may be the literal name of a file.
    matches = [pattern] if Path(pattern).is_file() else glob.glob(pattern, recursive=True)
    paths: list[File] = [*sorted(path for path in map(Path, matches) if path.is_file())]
    if not paths:
        raise CorpusError(f"no file matches {pattern!r} in {Path.cwd()}{_hint(pattern)}")
    return paths


def _in_bucket(pattern: str) -> list[File]:
    info = storage.info_of(pattern)
    if info is not None and info["type"] == "file":
        return [RemoteFile(pattern, info["size"], storage.version(info))]
    files: list[File] = [*storage.glob(pattern)] if info is None else []
    if not files:
        hint = f": it is a folder; write {pattern.rstrip('/')}/*" if info is not None else ""
        raise CorpusError(f"no object matches {pattern!r}{hint}")
    return files


def _hint(pattern: str) -> str:
    """Advice for a directory, a path in a missing one, or the name of a corpus; otherwise empty."""
    path = Path(pattern)
    if pattern in registry.names():
        return f": it is the name of a corpus; give it as the task, --task {pattern}"
    if path.is_dir():
        return f": it is a directory; write {pattern.rstrip('/')}/*"
    fixed = next(parent for parent in path.parents if not glob.has_magic(str(parent)))
    return "" if fixed.is_dir() else f": there is no directory {fixed}"


def size(file: File) -> int:
    """The bytes of a file as it is stored."""
    return file.stat().st_size if isinstance(file, Path) else file.size


def sample_digests(files: Sequence[File]) -> list[str]:
    """A digest of 16 pieces of each file, 64 KiB each and evenly spread; the same in a bucket."""
    remote = [file for file in files if isinstance(file, RemoteFile)]
    known = dict(zip(remote, _remote_digests(tuple(remote)), strict=True))
    return [known[file] if isinstance(file, RemoteFile) else _local_digest(file) for file in files]


def _local_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for start in _starts(path.stat().st_size):
            file.seek(start)
            digest.update(file.read(_CHUNK))
    return digest.hexdigest()


@functools.lru_cache(16)
def _remote_digests(files: tuple[RemoteFile, ...]) -> list[str]:
    ranges = [
        (file, (start, min(start + _CHUNK, file.size)))
        for file in files
        for start in _starts(file.size)
    ]
    pieces = iter(
        storage.read_pieces([file for file, _ in ranges], [bounds for _, bounds in ranges])
    )
    return [
        hashlib.sha256(b"".join(next(pieces) for _ in range(_CHUNKS))).hexdigest() for _ in files
    ]


def _starts(size: int) -> list[int]:
    return [max(size - _CHUNK, 0) * i // (_CHUNKS - 1) for i in range(_CHUNKS)]

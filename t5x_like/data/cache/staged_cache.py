"""Caches in buckets, copied to this host's disk while they are used.

The index and the vocabulary are copied when a cache is opened. The shards follow in a thread, in
their order, while the program is compiled and the first steps are taken; a reader that needs one
earlier fetches it itself.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from t5x_like.core import progress, whole_files
from t5x_like.core.buckets import staging, storage
from t5x_like.data.cache.format import MANIFEST, CacheError, FileSum, Manifest

_begun: set[Path] = set()


def begin(directory: Path) -> None:
    """Has the bucket's manifest in the copy of a cache, and nothing of an earlier cache.

    Raises:
      CacheError: the bucket holds no whole cache there.
    """
    url = staging.address(directory)
    if url is None:
        return
    manifest = staging.remote_bytes(directory / MANIFEST)
    if manifest is None:
        raise CacheError(
            f"{url} holds no whole cache: it has no {MANIFEST}; run `t5x_like cache` with "
            "--cache_dir in the bucket"
        )
    file = directory / MANIFEST
    if file.is_file() and file.read_bytes() != manifest:
        staging.clear(directory)
    staging.hold(directory)
    if not file.is_file():
        whole_files.write(file, manifest)


def stage(directory: Path, manifest: Manifest) -> None:
    """Copies the small files of a cache, and begins to copy its shards.

    Raises:
      StorageError: there is no room, or a file cannot be copied.
    """
    url = staging.address(directory)
    if url is None:
        return
    small = dict(manifest.files)
    shards: dict[str, FileSum] = {}
    for info in manifest.splits.values():
        small |= info.index
        shards |= info.shard_sums
    missing = _missing(directory, {**small, **shards})
    if not missing:
        return
    staging.make_room(sum(missing.values()))
    for name, file_sum in small.items():
        staging.fetch_file(directory / name, size=file_sum.bytes, sha256=file_sum.sha256)
    if directory not in _begun:
        _begun.add(directory)
        threading.Thread(
            target=_fetch, args=(directory, shards), daemon=True, name=f"stage {url}"
        ).start()


def _missing(directory: Path, sums: Mapping[str, FileSum]) -> dict[str, int]:
    """The bytes of each file that is not whole in the copy."""
    return {
        name: file_sum.bytes
        for name, file_sum in sums.items()
        if not (directory / name).is_file() or (directory / name).stat().st_size != file_sum.bytes
    }


def _fetch(directory: Path, shards: Mapping[str, FileSum]) -> None:
    url = staging.address(directory)
    missing = _missing(directory, shards)
    with progress.bar(
        desc=f"copying {url}", total=sum(missing.values()), unit="B", unit_scale=True, delay=2
    ) as bar:
        for name in missing:
            file_sum = shards[name]
            try:
                staging.fetch_file(
                    directory / name,
                    size=file_sum.bytes,
                    sha256=file_sum.sha256,
                    arrived=bar.update,
                )
            except storage.StorageError:
                # Its reader tries again, and raises.
                continue
    _begun.discard(directory)

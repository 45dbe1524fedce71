"""A reader of caches: the manifest, the vocabulary, and the records of a split by number."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader

from t5x_like.core.buckets import staging
from t5x_like.core.protocols.data import TokenIds, Vocabulary
from t5x_like.data.cache import staged_cache
from t5x_like.data.cache.format import (
    FLAGS,
    MANIFEST,
    CacheError,
    FileSum,
    Manifest,
    counts_name,
    flags_name,
    new_document_name,
    offsets_name,
    read_manifest,
    remake,
)
from t5x_like.data.cache.record_codec import Joined
from t5x_like.vocabularies import loading

_OPEN_SHARDS = 256
_PIECE = 1 << 20
_REMAKE = "make the cache again: `t5x_like cache ... --overwrite`"
_AT_RANDOM = "readahead_buffer_size:0,max_parallelism:0"
_IN_ORDER = "readahead_buffer_size:1048576,max_parallelism:0"


class Cache:
    """A complete cache of one corpus under one vocabulary.

    A pickle holds its directory and manifest.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, (self.directory, self.manifest)

    @staticmethod
    def exists(directory: Path | str) -> bool:
        """Whether the directory holds a complete cache, of any corpus and format."""
        path = staging.local(directory)
        if staging.address(path) is not None:
            return staging.remote_bytes(path / MANIFEST) is not None
        return (path / MANIFEST).is_file()

    @classmethod
    def open(
        cls,
        directory: Path | str,
        *,
        corpus_fingerprint: str | None = None,
        vocabulary_fingerprint: str | None = None,
    ) -> Cache:
        """Opens a cache, after a check that it is complete and of the expected text.

        Args:
          directory: the directory of the cache.
          corpus_fingerprint: the fingerprint that its corpus must have; None for any corpus.
          vocabulary_fingerprint: the fingerprint that its vocabulary must have; None for any
            vocabulary.

        Raises:
          CacheError: the cache is missing, incomplete, truncated, of another format version, or of
            another corpus or vocabulary.
        """
        directory = staging.local(directory)
        staged_cache.begin(directory)
        manifest = read_manifest(directory)
        if corpus_fingerprint not in (None, manifest.corpus_fingerprint):
            raise CacheError(
                f"the cache {staging.known_as(directory)} is of another text than "
                f"{manifest.corpus!r} has now: the files, their reading options or the Python "
                f"version changed; {_REMAKE}"
            )
        if vocabulary_fingerprint not in (None, manifest.vocabulary_fingerprint):
            raise CacheError(
                f"the cache {staging.known_as(directory)} was tokenised with another vocabulary "
                f"({manifest.vocabulary}); name that vocabulary or another cache directory, or "
                f"{_REMAKE}"
            )
        staged_cache.stage(directory, manifest)
        _check(directory, manifest)
        _check_arrays(directory, manifest)
        return cls(directory, manifest)

    @functools.cached_property
    def token_ids(self) -> TokenIds:
        """The special ids, the properties of each id, and its count in the training text."""
        ids = self.manifest.token_ids
        arrays: dict[str, Any] = {}
        for name in FLAGS:
            has = flags_name(name) in self.manifest.files
            arrays[name] = np.array(_map_array(self.directory / flags_name(name))) if has else None
        if "train" in self.manifest.splits and "targets" in self.manifest.features:
            arrays["counts"] = self.split("train").counts["targets"][: ids.vocab_size]
        return dataclasses.replace(ids, **arrays)

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that the cache contains.

        Raises:
          CacheError: it is not the one that tokenised the text.
        """
        saved = loading.load(str(self.directory))
        if saved.fingerprint != self.manifest.vocabulary_fingerprint:
            raise CacheError(
                f"{self.directory} has the vocabulary {saved!r}, which did not tokenise its text; "
                f"{remake(self.directory)}"
            )
        return saved

    def split(self, name: str) -> CacheSplit:
        """The records of a split.

        Raises:
          CacheError: there is no split of this name.
        """
        if name not in self.manifest.splits:
            known = ", ".join(self.manifest.splits)
            raise CacheError(f"the cache {self.directory} has no split {name!r}, only {known}")
        return CacheSplit(self.directory, self.manifest, name)


def _check(directory: Path, manifest: Manifest) -> None:
    """Compares the content of all files but shards, whose records have digests of their own."""
    # Shards in a bucket may still be on their way.
    later = staging.address(directory) is not None
    small = dict(manifest.files)
    for info in manifest.splits.values():
        small |= info.index
        for name, shard in info.shard_sums.items():
            if not later:
                _check_size(directory / name, shard.bytes)
    for name, expected in small.items():
        path = directory / name
        _check_size(path, expected.bytes)
        if FileSum.of(path) != expected:
            raise CacheError(f"{path} is damaged: its content has changed; {remake(directory)}")


def _check_arrays(directory: Path, manifest: Manifest) -> None:
    """Compares what the manifest says with the arrays; whoever wrote both may have lied in one."""
    ids, rows = manifest.token_ids.vocab_size, len(manifest.features)
    for name in FLAGS:
        if flags_name(name) in manifest.files:
            _array(directory / flags_name(name), bool, (ids,))
    for split, info in manifest.splits.items():
        offsets = _array(directory / offsets_name(split), np.int64, (rows, info.records + 1))
        begins = _array(directory / new_document_name(split), bool, (info.records,))
        counts = _array(directory / counts_name(split), np.int64, (rows, None))
        same = (
            all(map(_rises_from_0, offsets))
            and offsets[:, -1].tolist() == list(info.tokens.values())
            and np.count_nonzero(begins) == info.documents
            and counts.shape[1] >= ids
        )
        if not same:
            raise CacheError(
                f"{directory / offsets_name(split)} has other records than {MANIFEST} says; "
                f"{remake(directory)}"
            )


def _array(path: Path, dtype: Any, shape: tuple[int | None, ...]) -> np.ndarray:
    """A mapped array of this type and shape; None for an axis of any length."""
    array = _map_array(path)
    fits = len(array.shape) == len(shape) and all(
        wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits:
        raise CacheError(
            f"{path} holds {array.dtype} of the shape {array.shape}, not what {MANIFEST} says; "
            f"{remake(path.parent)}"
        )
    return array


def _rises_from_0(offsets: np.ndarray) -> bool:
    """Whether offsets, of which there may be billions, begin with 0 and never fall."""
    pieces = range(0, len(offsets), _PIECE)
    return offsets[0] == 0 and all(
        bool((np.diff(offsets[at : at + _PIECE + 1]) >= 0).all()) for at in pieces
    )


def _check_size(path: Path, size: int) -> None:
    try:
        actual = path.stat().st_size
    except OSError:
        raise CacheError(f"{path} is missing; {remake(path.parent)}") from None
    if actual != size:
        how = "truncated" if actual < size else "damaged"
        raise CacheError(
            f"{path} is {how}: {actual:,} bytes instead of {size:,}; {remake(path.parent)}"
        )


class CacheSplit:
    """The records of a split, which any number of threads may read in any order.

    A pickle holds its directory, manifest and name.
    """

    def __init__(self, directory: Path, manifest: Manifest, name: str) -> None:
        self.directory = directory
        self.manifest = manifest
        self.name = name
        self.info = manifest.splits[name]
        self._codec = manifest.codec
        self._begins = [0, *itertools.accumulate(shard.records for shard in self.info.shards)]
        # A file closes when its last user drops it, because other threads may still read it.
        self._reader = functools.lru_cache(_OPEN_SHARDS)(self._open_shard)
        self._latest = (-1, b"")

    def __reduce__(self) -> tuple[Any, ...]:
        return CacheSplit, (self.directory, self.manifest, self.name)

    def __len__(self) -> int:
        return self.info.records

    @property
    def content(self) -> str:
        """A text that differs wherever the records differ."""
        made_of = self.manifest
        return repr(
            (
                made_of.content_hash,
                made_of.vocabulary_fingerprint,
                made_of.segmentation,
                made_of.piece_tokens,
            )
        )

    @functools.cached_property
    def offsets(self) -> Mapping[str, np.ndarray]:
        """int64 [records + 1] for each feature: the number of tokens before each record.

        The arrays are mapped from disk.
        """
        rows = _map_array(self.directory / offsets_name(self.name))
        return dict(zip(self.manifest.features, rows, strict=True))

    @functools.cached_property
    def new_document(self) -> np.ndarray:
        """bool [records]: False where a record continues the document of the previous record."""
        return _map_array(self.directory / new_document_name(self.name))

    @functools.cached_property
    def counts(self) -> Mapping[str, np.ndarray]:
        """int64 [vocab_size] for each feature: the number of occurrences of each id."""
        rows = np.array(_map_array(self.directory / counts_name(self.name)))
        return dict(zip(self.manifest.features, rows, strict=True))

    def lengths(self, feature: str) -> np.ndarray:
        """int64 [records]: the number of tokens in each record."""
        return np.diff(self.offsets[feature])

    def longer(self, feature: str, length: int) -> int:
        """The number of records, of which there may be billions, with more tokens than `length`."""
        return self.longer_together((feature,), length)

    def longer_together(self, features: Sequence[str], length: int) -> int:
        """The number of records whose features have more tokens than `length` together."""
        count = 0
        for at in range(0, len(self.offsets[features[0]]), _PIECE):
            part = slice(at, at + _PIECE + 1)
            sizes = sum(np.diff(self.offsets[feature][part]) for feature in features)
            count += int(np.count_nonzero(sizes > length))
        return count

    def record(self, i: int) -> dict[str, np.ndarray]:
        """{feature: int32 [n]} of record `i`. The caller may change the arrays."""
        return self._codec.decode(self._read(i))

    def raw_feature(self, i: int, feature: str) -> np.ndarray:
        """[n]: a feature of record `i` in its stored dtype. The caller must not change it."""
        return self._codec.raw_feature(self._read(i), feature)

    def segments(self, i: int) -> np.ndarray:
        """int32 [S]: the positions in record `i` at which a segment starts.

        A first position above 0 means that the previous record ends inside a segment.
        """
        return self._codec.segments(self._read(i))

    def joined(self, begin: int, end: int, feature: str) -> Joined:
        """A feature of records `begin` to `end` - 1, read together: many times as fast."""
        data: list[bytes] = []
        while begin + len(data) < end:
            data += self._read_from_shard(begin + len(data), end, in_order=True)
        try:
            return self._codec.joined(data, feature)
        except ValueError as error:
            raise CacheError(
                f"{self.directory} is damaged at records {begin} to {end} of {self.name!r} "
                f"({error}); {remake(self.directory)}"
            ) from error

    def _read(self, i: int) -> bytes:
        # A caller often reads a record twice, for another range of its tokens or for its segments.
        number, data = self._latest
        if number != i:
            data = self._read_from_shard(i, i + 1)[0]
            self._latest = (i, data)
        return data

    def _open_shard(self, number: int, options: str = _AT_RANDOM) -> Any:
        shard = self.info.shards[number]
        path = self.directory / shard.file
        staging.fetch_file(path, size=shard.bytes, sha256=shard.sha256)
        reader = ArrayRecordReader(str(path), options)
        if reader.num_records() != shard.records:
            raise ValueError(f"{reader.num_records():,} records instead of {shard.records:,}")
        return reader

    def _read_from_shard(self, begin: int, end: int, *, in_order: bool = False) -> list[bytes]:
        """Records from `begin` on, up to `end` or the end of the shard; `in_order` many at once."""
        if not 0 <= begin < len(self):
            raise IndexError(f"no record {begin} among {len(self)} of split {self.name!r}")
        shard = bisect.bisect_right(self._begins, begin) - 1
        position = begin - self._begins[shard]
        last = min(end, self._begins[shard + 1]) - self._begins[shard]
        try:
            # Positions are given as a range, because a list takes three times as long.
            reader = self._open_shard(shard, _IN_ORDER) if in_order else self._reader(shard)
            data = reader.read(position, last)
            if not in_order:
                self._codec.check(data[0])
            return data
        except (IndexError, RuntimeError, ValueError) as error:
            where = (
                f"record {position}" if last == position + 1 else f"records {position} to {last}"
            )
            path = self.directory / self.info.shards[shard].file
            raise CacheError(
                f"{path} is damaged at {where} ({error}); {remake(self.directory)}"
            ) from error


def _map_array(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OverflowError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise CacheError(f"{path} is not an array ({error}); {remake(path.parent)}") from error

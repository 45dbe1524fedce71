"""The format of a cache: the bytes of a record, the names of the files, the manifest.

<cache>/manifest.json            written last, so that a cache with a manifest is complete
        vocabulary.json ...      the vocabulary, as `Vocabulary.save` writes it
        train-00000.arrayrecord  records, in corpus order
        train.offsets.npy        int64 [features, records + 1], tokens before each record
        train.new_document.npy   bool [records], False where a record continues a document
        train.counts.npy         int64 [features, vocabulary], occurrences of each id
        word_starts.npy ...      bool [vocabulary], for each such array that the vocabulary has
        train.plan-<key>         tables computed later from the records (`data.samples.plans`)
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import operator
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np

from t5x_like.core import whole_files
from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.cache import typed_json

FORMAT_VERSION = 4
MANIFEST = "manifest.json"
_DIGEST = "sha256"
FLOAT = "float32"
FLAGS = tuple(name for name in TokenIds.ARRAYS if name != "counts")
"""The arrays of a vocabulary about each of its ids; counts are those of a text."""

_OTHER_LENGTHS = "a record has other lengths than it says"


class CacheError(ValueError):
    """A cache cannot be written or read; the message gives a remedy."""


def token_dtype(vocab_size: int) -> str:
    """The smallest dtype that holds every id: 'uint16' or 'int32'."""
    return "uint16" if vocab_size <= 1 << 16 else "int32"


def shard_name(split: str, number: int) -> str:
    """The name of one of the files that hold a split's records."""
    return f"{split}-{number:05d}.arrayrecord"


def offsets_name(split: str) -> str:
    """The name of the file of token offsets."""
    return f"{split}.offsets.npy"


def new_document_name(split: str) -> str:
    """The name of the file of document starts."""
    return f"{split}.new_document.npy"


def counts_name(split: str) -> str:
    """The name of the file of token counts."""
    return f"{split}.counts.npy"


_INDEX = (offsets_name, new_document_name, counts_name)


def flags_name(array: str) -> str:
    """The name of the file of one of `FLAGS`."""
    return f"{array}.npy"


def plan_name(split: str, key: str) -> str:
    """The name of the file of a table of `data.samples.plans`."""
    return f"{split}.plan-{key}"


class Joined(NamedTuple):
    """Consecutive records end to end.

    Attributes:
      values: [n]: a feature of all records, in its stored dtype.
      segments: int32 [S]: the positions in its own record at which each segment starts.
      counts: int64 [records]: the number of segments that start in each record.
    """

    values: np.ndarray
    segments: np.ndarray
    counts: np.ndarray


@dataclasses.dataclass(frozen=True)
class RecordCodec:
    """The encoding of a record: int32 lengths, the segments' starts, then each feature's values.

    Attributes:
      features: the stored dtype of each feature, in stored order.
    """

    features: Mapping[str, str]

    def encode(self, record: Mapping[str, np.ndarray], segments: np.ndarray | None = None) -> bytes:
        """The bytes of a record.

        Args:
          record: a 1-D array for each feature.
          segments: int32 [S], the positions in the first feature at which a segment starts.
        """
        starts = np.zeros(0, "<i4") if segments is None else segments.astype("<i4", copy=False)
        values = [record[name].astype(dtype, copy=False) for name, dtype in self._types.items()]
        header = self._header.pack(*map(len, values), len(starts))
        return b"".join([header, starts.tobytes(), *(array.tobytes() for array in values)])

    def decode(self, data: bytes) -> dict[str, np.ndarray]:
        """{feature: int32 (or float32) [n]} of a record. The caller may change the arrays."""
        return {
            name: self.raw_feature(data, name).astype(np.float32 if stored == FLOAT else np.int32)
            for name, stored in self.features.items()
        }

    def raw_feature(self, data: bytes, feature: str) -> np.ndarray:
        """[n] of the stored dtype: one feature of a record, a view that must not be changed."""
        lengths = self._header.unpack_from(data)
        position = self._header.size + 4 * lengths[-1]
        for (name, dtype), length in zip(self._types.items(), lengths, strict=False):
            if name == feature:
                return np.frombuffer(data, dtype, length, position)
            position += length * dtype.itemsize
        raise KeyError(f"records have no feature {feature!r}, only {', '.join(self.features)}")

    def joined(self, data: Sequence[bytes], feature: str) -> Joined:
        """A feature and the segments of many records, without a call for each."""
        # Every part of a record has an even number of bytes.
        halves = np.frombuffer(b"".join(data), "<u2")
        sizes = np.fromiter(map(len, data), np.int64, len(data)) // 2
        at = np.cumsum(sizes) - sizes
        size = np.full(len(data), self._header.size // 2)
        if (size > sizes).any():
            raise ValueError(_OTHER_LENGTHS)
        header = gathered(halves, at, size).view("<i4").reshape(-1, len(self.features) + 1)
        header = header.astype(np.int64)
        if (header < 0).any() or (header @ self._widths // 2 + size != sizes).any():
            raise ValueError(_OTHER_LENGTHS)
        counts = header[:, -1]
        segments = gathered(halves, at + size, 2 * counts).view("<i4").astype(np.int32)
        at += size + 2 * counts
        for (name, dtype), lengths in zip(self._types.items(), header.T, strict=False):
            size = lengths * (dtype.itemsize // 2)
            if name == feature:
                return Joined(gathered(halves, at, size).view(dtype), segments, counts)
            at += size
        raise KeyError(f"records have no feature {feature!r}, only {', '.join(self.features)}")

    def check(self, data: bytes) -> None:
        """Raises ValueError where a record is not as long as its header says."""
        lengths = self._header.unpack_from(data) if len(data) >= self._header.size else ()
        size = sum(map(operator.mul, lengths, self._widths)) + self._header.size
        if size != len(data) or min(lengths) < 0:
            raise ValueError(_OTHER_LENGTHS)

    @functools.cached_property
    def _widths(self) -> list[int]:
        """The bytes of a value of each feature, then of the start of a segment."""
        return [*(dtype.itemsize for dtype in self._types.values()), 4]

    @functools.cached_property
    def _header(self) -> struct.Struct:
        return struct.Struct(f"<{len(self.features) + 1}i")

    @functools.cached_property
    def _types(self) -> dict[str, np.dtype]:
        return {name: _little_endian(stored) for name, stored in self.features.items()}

    def segments(self, data: bytes) -> np.ndarray:
        """int32 [S]: the positions in a record's first feature at which a segment starts."""
        count = self._header.unpack_from(data)[-1]
        return np.frombuffer(data, "<i4", count, self._header.size).astype(np.int32)


def gathered(values: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The ranges of `values` of these starts and sizes (int64 [n] each), one after another."""
    before = np.cumsum(sizes) - sizes
    return values[np.arange(sizes.sum()) + np.repeat(starts - before, sizes)]


def _little_endian(dtype: str) -> np.dtype:
    return np.dtype(dtype).newbyteorder("<")


@dataclasses.dataclass(frozen=True)
class FileSum:
    """The bytes of a file and their SHA-256."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileSum:
        """That of a file on a disk."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(path.stat().st_size, digest)


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records."""

    file: str
    records: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class SplitInfo:
    """The part of a manifest about one split.

    Attributes:
      shards: the shards, in corpus order.
      documents: the number of documents with at least one token.
      tokens: the number of tokens of each feature.
      skipped_documents: the number of documents left out because of invalid UTF-8.
      index: the sum of each index file.
    """

    shards: tuple[Shard, ...]
    records: int
    documents: int
    tokens: Mapping[str, int]
    skipped_documents: int
    index: Mapping[str, FileSum]

    @property
    def shard_sums(self) -> dict[str, FileSum]:
        """The sum of each shard."""
        return {shard.file: FileSum(shard.bytes, shard.sha256) for shard in self.shards}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of a cache and their origin.

    Attributes:
      version: the version of this format; a reader refuses every other version.
      corpus: the name of the corpus or SeqIO task.
      corpus_fingerprint: the fingerprint of the corpus, computed without reading all of it.
      content_hash: the hash of all text (or, for a SeqIO task, all tokens) that was read.
      vocabulary: the value of `Vocabulary.to_json()`.
      features: the stored dtype of each feature.
      segmentation: the rule that cut documents into segments; None where a record is a document.
      piece_tokens: the length of the longest record of a cut document; None where a record is a
        document.
      materialized: {'lengths', 'seed', 'epochs'} of a task that was run to its last step, or to a
        step that depends on the lengths.
      files: the sum of each file of the vocabulary.
      seqio_task: whether the cache is of a SeqIO task, whose later steps are in a task record.
    """

    corpus: str
    corpus_fingerprint: str
    vocabulary: Mapping[str, Any]
    vocabulary_fingerprint: str
    token_ids: TokenIds
    features: Mapping[str, str]
    segmentation: str | None = None
    piece_tokens: int | None = None
    materialized: Mapping[str, Any] | None = None
    seqio_task: bool = False
    content_hash: str = ""
    files: Mapping[str, FileSum] = dataclasses.field(default_factory=dict)
    splits: Mapping[str, SplitInfo] = dataclasses.field(default_factory=dict)
    version: int = FORMAT_VERSION

    def to_json(self) -> dict[str, Any]:
        """Its fields, and their digest as `sha256`."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        splits = {name: dataclasses.asdict(info) for name, info in self.splits.items()}
        files = {name: dataclasses.asdict(found) for name, found in self.files.items()}
        fields |= {"token_ids": self.token_ids.to_json(), "splits": splits, "files": files}
        return fields | {_DIGEST: _digest(fields)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Manifest:
        """From the result of `to_json`, without its digest.

        Raises:
          ValueError: a field has another type, or a value that no writer gives it.
        """
        found: Manifest = typed_json.read(cls, fields, "manifest")
        found._check()
        return found

    def _check(self) -> None:
        """Raises ValueError where fields contradict each other, or names leave the directory."""
        ids = self.token_ids
        wrong = {i for i in ids.special if i >= ids.vocab_size}
        if not 0 < ids.vocab_size < 1 << 31 or wrong:
            raise ValueError(f"vocab_size is {ids.vocab_size}, special ids are {ids.special}")
        if not 0 <= ids.sentinel(0) < ids.vocab_size:
            raise ValueError(f"sentinels begin at {ids.sentinel(0)} of {ids.vocab_size} ids")
        if not self.splits or not self.files:
            raise ValueError("it names no split, or no file of the vocabulary")
        if odd := set(self.features.values()) - {"uint16", "int32", FLOAT}:
            raise ValueError(f"features have the types {sorted(odd)}")
        for split, info in self.splits.items():
            names = [shard_name(split, i) for i in range(len(info.shards))]
            if [shard.file for shard in info.shards] != names:
                raise ValueError(f"the shards of {split!r} are not {names[:3]}")
            if sum(shard.records for shard in info.shards) != info.records:
                raise ValueError(f"the shards of {split!r} do not have {info.records:,} records")
            if info.index.keys() != {name(split) for name in _INDEX} or info.tokens.keys() != (
                self.features.keys()
            ):
                raise ValueError(f"the index of {split!r} is not that of its features")
        if self.materialized is not None:
            for name, kind in (("lengths", Mapping[str, int]), ("epochs", int)):
                typed_json.read(kind, self.materialized.get(name), f"materialized.{name}")
        for name in (*self.files, *self.splits):
            if PurePath(name).name != name:
                raise ValueError(f"{name!r} is no name of a file or split")

    @property
    def codec(self) -> RecordCodec:
        return RecordCodec(self.features)

    @property
    def materialized_epochs(self) -> int:
        """The number of epochs in the cache: one, unless a task was materialised."""
        return 1 if self.materialized is None else int(self.materialized["epochs"])


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a complete cache.

    Raises:
      CacheError: there is no manifest, it cannot be read, or it is of another format version.
    """
    path = directory / MANIFEST
    if not path.exists():
        state = "is not complete" if any(directory.glob("*.arrayrecord")) else "holds no cache"
        raise CacheError(f"{directory} {state}: it has no {MANIFEST}; run `t5x_like cache`")
    try:
        fields = whole_files.read_json(path)
    except ValueError as error:
        raise CacheError(f"{error}; {remake(directory)}") from error
    if (version := fields.get("version")) != FORMAT_VERSION:
        raise CacheError(
            f"{directory} was written in cache format {version}; this version of t5x_like reads "
            f"format {FORMAT_VERSION}; {remake(directory)}"
        )
    if fields.pop(_DIGEST, None) != _digest(fields):
        raise CacheError(f"{path} is damaged: its content has changed; {remake(directory)}")
    try:
        return Manifest.from_json(fields)
    except ValueError as error:
        raise CacheError(
            f"{path} is no manifest that t5x_like wrote ({error}); {remake(directory)}"
        ) from error


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def remake(directory: Path) -> str:
    """Advice for a cache that cannot be used."""
    return f"delete {directory} and make the cache again with `t5x_like cache`"

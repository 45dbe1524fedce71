"""What a cache is made of: the bytes of a record, the names of its files, its manifest.

<cache>/manifest.json            written last: where it is, the cache is complete
        vocabulary.json ...      the vocabulary, as `Vocabulary.save` writes it
        train-00000.arrayrecord  records, in corpus order
        train.offsets.npy        int64 [features, records + 1], tokens before each record
        train.new_document.npy   bool [records], False where a record continues a document
        train.counts.npy         int64 [features, vocabulary], occurrences of each id
        word_starts.npy ...      bool [vocabulary], for each such array that the vocabulary has
        train.plan-<key>         tables worked out of the records later on (`data.samples.plans`)
"""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t5x_like.core.protocols import TokenIds

FORMAT_VERSION = 3
MANIFEST = "manifest.json"
FLOAT = "float32"
FLAGS = tuple(name for name in TokenIds.ARRAYS if name != "counts")
"""What a vocabulary says of each of its ids; how often one occurs is a matter of the text."""


class CacheError(ValueError):
    """A cache that cannot be written or read; the message says what to do."""


def token_dtype(vocab_size: int) -> str:
    """The smallest stored type that holds every id: 'uint16' or 'int32'."""
    return "uint16" if vocab_size <= 1 << 16 else "int32"


def shard_name(split: str, number: int) -> str:
    """The file of a split's records; there are as many as the split needs."""
    return f"{split}-{number:05d}.arrayrecord"


def offsets_name(split: str) -> str:
    """The file of token offsets."""
    return f"{split}.offsets.npy"


def new_document_name(split: str) -> str:
    """The file of document starts."""
    return f"{split}.new_document.npy"


def counts_name(split: str) -> str:
    """The file of token counts."""
    return f"{split}.counts.npy"


def flags_name(array: str) -> str:
    """The file of one of `FLAGS`."""
    return f"{array}.npy"


def plan_name(split: str, key: str) -> str:
    """The file of a table that `data.samples.plans` keeps."""
    return f"{split}.plan-{key}"


@dataclasses.dataclass(frozen=True)
class RecordCodec:
    """A record as bytes: int32 lengths, the segments' starts, then each feature's values.

    Attributes:
      features: stored dtype of each feature, in stored order.
    """

    features: Mapping[str, str]

    def encode(self, record: Mapping[str, np.ndarray], segments: np.ndarray | None = None) -> bytes:
        """The bytes of a record.

        Args:
          record: one 1-D array a feature.
          segments: int32 [S], positions of the first feature at which a segment starts.
        """
        starts = np.zeros(0, "<i4") if segments is None else segments.astype("<i4", copy=False)
        values = [record[name].astype(dtype, copy=False) for name, dtype in self._types.items()]
        header = self._header.pack(*map(len, values), len(starts))
        return b"".join([header, starts.tobytes(), *(array.tobytes() for array in values)])

    def decode(self, data: bytes) -> dict[str, np.ndarray]:
        """{feature: int32 (or float32) [n]} of a record; the arrays are the caller's own."""
        return {
            name: self.raw_feature(data, name).astype(np.float32 if stored == FLOAT else np.int32)
            for name, stored in self.features.items()
        }

    def raw_feature(self, data: bytes, feature: str) -> np.ndarray:
        """[n] of the stored dtype: one feature of a record, in place and not to be changed."""
        lengths = self._header.unpack_from(data)
        position = self._header.size + 4 * lengths[-1]
        for (name, dtype), length in zip(self._types.items(), lengths, strict=False):
            if name == feature:
                return np.frombuffer(data, dtype, length, position)
            position += length * dtype.itemsize
        raise KeyError(f"records have no feature {feature!r}, only {', '.join(self.features)}")

    @functools.cached_property
    def _header(self) -> struct.Struct:
        return struct.Struct(f"<{len(self.features) + 1}i")

    @functools.cached_property
    def _types(self) -> dict[str, np.dtype]:
        return {name: _little_endian(stored) for name, stored in self.features.items()}

    def segments(self, data: bytes) -> np.ndarray:
        """int32 [S]: where segments start in a record's first feature."""
        count = self._header.unpack_from(data)[-1]
        return np.frombuffer(data, "<i4", count, self._header.size).astype(np.int32)


def _little_endian(dtype: str) -> np.dtype:
    return np.dtype(dtype).newbyteorder("<")


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records."""

    file: str
    records: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class SplitInfo:
    """What a manifest says of one split.

    Attributes:
      shards: in corpus order.
      documents: documents with at least one token.
      tokens: of each feature.
      skipped_documents: left out for invalid UTF-8.
      index_bytes: size of each index file.
    """

    shards: tuple[Shard, ...]
    records: int
    documents: int
    tokens: Mapping[str, int]
    skipped_documents: int
    index_bytes: Mapping[str, int]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SplitInfo:
        shards = tuple(Shard(**shard) for shard in fields["shards"])
        return cls(**{**fields, "shards": shards})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a cache holds, and of what it was made.

    Attributes:
      version: of this format; another one is refused.
      corpus: name of the corpus or SeqIO task.
      corpus_fingerprint: what the corpus said of itself without being read.
      content_hash: of all text (or, for a SeqIO task, all tokens) that was read.
      vocabulary: `Vocabulary.to_json()`.
      features: stored dtype of each feature.
      segmentation: the rule that cut documents into segments; None where records are whole.
      piece_tokens: longest record of a cut document; None where records are whole.
      materialized: {'lengths', 'seed', 'epochs'} of a task that was run to its end.
      seqio_task: whether it is of a SeqIO task, whose later steps a task record keeps.
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
    splits: Mapping[str, SplitInfo] = dataclasses.field(default_factory=dict)
    version: int = FORMAT_VERSION

    def to_json(self) -> dict[str, Any]:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        splits = {name: dataclasses.asdict(info) for name, info in self.splits.items()}
        return fields | {"token_ids": self.token_ids.to_json(), "splits": splits}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Manifest:
        splits = {name: SplitInfo.from_json(info) for name, info in fields["splits"].items()}
        token_ids = TokenIds.from_json(fields["token_ids"])
        return cls(**{**fields, "token_ids": token_ids, "splits": splits})

    @property
    def codec(self) -> RecordCodec:
        return RecordCodec(self.features)

    @property
    def materialized_epochs(self) -> int:
        """How many times the corpus is in the cache: once, unless a task was materialised."""
        return 1 if self.materialized is None else int(self.materialized["epochs"])


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a complete cache.

    Raises:
      CacheError: there is none, it cannot be read, or another version of the code wrote it.
    """
    path = directory / MANIFEST
    if not path.exists():
        state = "is not complete" if any(directory.glob("*.arrayrecord")) else "holds no cache"
        raise CacheError(f"{directory} {state}: it has no {MANIFEST}; run `t5x_like cache`")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        version = fields["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise CacheError(f"{path} cannot be read ({error}); {remake(directory)}") from error
    if version != FORMAT_VERSION:
        raise CacheError(
            f"{directory} was written in cache format {version}; this version of t5x_like reads "
            f"format {FORMAT_VERSION}; {remake(directory)}"
        )
    return Manifest.from_json(fields)


def remake(directory: Path) -> str:
    """What to do about a cache that cannot be used."""
    return f"delete {directory} and make the cache again with `t5x_like cache`"

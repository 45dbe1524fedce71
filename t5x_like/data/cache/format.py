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
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, Literal

from t5x_like.core import whole_files
from t5x_like.core.protocols.data import Column, TokenIds
from t5x_like.data.cache import typed_json
from t5x_like.data.cache.record_codec import FLOAT, RecordCodec

FORMAT_VERSION = 4
MANIFEST = "manifest.json"
_DIGEST = "sha256"
ANSWERS = ("passage", "spans", "characters")
"""What columns hold that belong to answers in a passage."""
FLAGS = tuple(name for name in TokenIds.ARRAYS if name != "counts")
"""The arrays of a vocabulary about each of its ids; counts are those of a text."""


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
      shapes: the shape of each feature that is not tokens; None for an axis of any length.
      labels: the names of the classes of each column of labels or tags, in the order of their
        numbers.
      words: the columns of words, whose tokens are kept as those of texts are.
      answers: what columns of answers in passages hold: "passage", "spans" or "characters".
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
    shapes: Mapping[str, tuple[int | None, ...]] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    words: tuple[str, ...] = ()
    answers: Mapping[str, str] = dataclasses.field(default_factory=dict)
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
        files = {name: dataclasses.asdict(file_sum) for name, file_sum in self.files.items()}
        fields |= {"token_ids": self.token_ids.to_json(), "splits": splits, "files": files}
        return fields | {_DIGEST: _digest(fields)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Manifest:
        """From the result of `to_json`, without its digest.

        Raises:
          ValueError: a field has another type, or a value that no writer gives it.
        """
        manifest: Manifest = typed_json.read(cls, fields, "manifest")
        manifest._check()
        return manifest

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
        known = {*self.features}
        tokens = known - {*self.shapes}
        if not {*self.labels} <= {*self.shapes} <= known or not {*self.words} <= tokens:
            raise ValueError(f"shapes, labels and words are not of the features {sorted(known)}")
        if not {*self.answers} <= known or not {*self.answers.values()} <= {*ANSWERS}:
            raise ValueError(f"columns of answers are {dict(self.answers)}")
        if any(size == 0 or None in shape[1:] for shape in self.shapes.values() for size in shape):
            raise ValueError(f"features have the shapes {dict(self.shapes)}")
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
                raise ValueError(f"{name!r} is not a name of a file or split")

    @property
    def codec(self) -> RecordCodec:
        return RecordCodec(self.features, self.shapes)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the text."""
        return tuple(map(self._column, self.features))

    def _column(self, name: str) -> Column:
        if name in self.answers:
            holds: Any = self.answers[name]
            return Column(name, holds)
        if name in self.labels:
            several: Literal["tags", "labels"] = "tags" if self.words else "labels"
            return Column(name, several if self.shapes[name] else "label")
        if name in self.shapes:
            return Column(name, "numbers", self.shapes[name])
        return Column(name, "words" if name in self.words else "text")

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
            f"{path} is not a manifest that t5x_like wrote ({error}); {remake(directory)}"
        ) from error


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def remake(directory: Path) -> str:
    """Advice for a cache that cannot be used."""
    return f"delete {directory} and make the cache again with `t5x_like cache`"

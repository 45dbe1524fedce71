"""A writer of cache shards. If it is killed, it loses only the shard that it was writing.

Until the manifest is written, a finished shard has two more files beside it: `<shard>.npz`
(lengths, document starts, token counts), and `<shard>.json`, which is written last and describes
the content of the shard.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from numpy.lib import format as npy

from t5x_like.core import whole_files
from t5x_like.core.protocols.data import Column, Vocabulary
from t5x_like.data.cache.format import (
    FLAGS,
    MANIFEST,
    CacheError,
    FileSum,
    Manifest,
    Shard,
    SplitInfo,
    counts_name,
    flags_name,
    new_document_name,
    offsets_name,
    shard_name,
)
from t5x_like.data.cache.record_codec import FLOAT, RecordCodec
from t5x_like.data.cache.tokenization import Record

SIDECARS = (".npz", ".json")
"""The endings that the two files beside an unfinished cache's shard add to its name, in order."""

_PACKED_TOKENS = 1 << 20
# Each chunk holds one record, so that a random read touches nothing else. It is not compressed:
# zstd saves at most a quarter, and decompression would take a third of the time of a read.
_OPTIONS = "group_size:1,uncompressed"


class Packed(NamedTuple):
    """Encoded records and their part of the index.

    Attributes:
      data: the bytes of each record.
      lengths: int64 [records, features].
      new_document: bool [records].
      counts: int64 [features, vocabulary], occurrences of each id.
    """

    data: list[bytes]
    lengths: np.ndarray
    new_document: np.ndarray
    counts: np.ndarray


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """The directory of the shards and the properties that all of them share.

    Attributes:
      columns, labels: as in the manifest.
      recipe: the digest of everything that decides a shard's bytes except its text.
    """

    directory: str
    features: Mapping[str, str]
    vocab_size: int
    recipe: str
    columns: tuple[Column, ...]
    labels: Mapping[str, Sequence[str]]

    def finished(self, split: str, number: int, *, content: str | None = None) -> bool:
        """Whether a complete shard of this recipe (and content, if known) exists."""
        path = Path(self.directory) / shard_name(split, number)
        try:
            description = _sidecar(path, ".json").read_bytes()
            size = path.stat().st_size
        except OSError:
            return False
        return self.is_described(description, size=size, content=content)

    def is_described(self, description: bytes, *, size: int, content: str | None = None) -> bool:
        """Whether the `.json` of a shard of `size` bytes is of this recipe (and content)."""
        try:
            made_of = json.loads(description)
            as_planned = made_of["recipe"] == self.recipe and made_of["bytes"] == size
            return as_planned and content in (None, made_of["content"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return False

    def packed(self, records: Iterable[Record]) -> Iterator[Packed]:
        """The encoded records in groups, so that memory is bounded.

        Raises:
          CacheError: the vocabulary does not have an id.
        """
        codec = RecordCodec(self.features)
        some: list[Record] = []
        tokens = 0
        for record in records:
            some.append(record)
            tokens += sum(tokens_of.size for tokens_of in record.features.values())
            if tokens >= _PACKED_TOKENS:
                yield self._pack(some, codec)
                some, tokens = [], 0
        if some:
            yield self._pack(some, codec)

    def _pack(self, records: list[Record], codec: RecordCodec) -> Packed:
        columns = {name: [record.features[name] for record in records] for name in self.features}
        return Packed(
            data=[codec.encode(record.features, record.segments) for record in records],
            lengths=np.array([[x.size for x in arrays] for arrays in columns.values()], np.int64).T,
            new_document=np.array([record.new_document for record in records], bool),
            counts=np.stack([self._counts(name, arrays) for name, arrays in columns.items()]),
        )

    def _counts(self, feature: str, arrays: list[np.ndarray]) -> np.ndarray:
        others = {c.name for c in self.columns if c.holds in ("spans", "characters")}
        if self.features[feature] == FLOAT or feature in {*self.labels, *others}:
            return np.zeros(self.vocab_size, np.int64)
        ids = np.concatenate(arrays)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.vocab_size:
            wrong = int(ids.min()) if ids.min() < 0 else int(ids.max())
            raise CacheError(
                f"feature {feature!r} holds id {wrong}, but its vocabulary has ids 0 to "
                f"{self.vocab_size - 1}; name the vocabulary that made these ids"
            )
        return np.bincount(ids, minlength=self.vocab_size)

    def write(
        self,
        split: str,
        number: int,
        *,
        records: Iterable[Record],
        content: str | Callable[[], str],
    ) -> int:
        """Writes a shard of records in order, like `write_packed` in all else."""
        return self.write_packed(split, number, parts=self.packed(records), content=content)

    def write_packed(
        self,
        split: str,
        number: int,
        *,
        parts: Iterable[Packed],
        content: str | Callable[[], str],
    ) -> int:
        """Writes a shard.

        Args:
          split: the split of the shard.
          number: the shard's place in the split.
          parts: its records, in order.
          content: the digest of the text; a function where the digest needs all of the text.

        Returns:
          The number of records.
        """
        path = Path(self.directory) / shard_name(split, number)
        temporary = whole_files.temporary_name(path)
        lengths = [np.zeros([0, len(self.features)], np.int64)]
        new_document = [np.zeros(0, bool)]
        counts = np.zeros([len(self.features), self.vocab_size], np.int64)
        try:
            with _record_writer(temporary) as writer:
                for part in parts:
                    with whole_files.naming(path):
                        for data in part.data:
                            writer.write(data)
                    lengths.append(part.lengths)
                    new_document.append(part.new_document)
                    counts += part.counts
            with whole_files.naming(path):
                whole = FileSum.of(temporary)
                temporary.rename(path)
        finally:
            whole_files.remove(temporary)
        index = {
            "lengths": np.concatenate(lengths),
            "new_document": np.concatenate(new_document),
            "counts": counts,
        }
        self._finish(path, index, whole, content=content() if callable(content) else content)
        return len(index["lengths"])

    def _finish(
        self, path: Path, index: Mapping[str, Any], whole: FileSum, *, content: str
    ) -> None:
        """Writes the two files beside a shard."""
        with whole_files.writing(_sidecar(path, ".npz")) as file:
            np.savez_compressed(file, **index)
        made_of = {
            "recipe": self.recipe,
            "content": content,
            "bytes": whole.bytes,
            "sha256": whole.sha256,
            "records": len(index["lengths"]),
            "documents": int(index["new_document"].sum()),
        }
        whole_files.write(_sidecar(path, ".json"), json.dumps(made_of).encode())


@contextlib.contextmanager
def _record_writer(temporary: Path) -> Iterator[ArrayRecordWriter]:
    """A writer of records; what it has not written yet it writes when the block ends."""
    with whole_files.naming(temporary):
        writer = ArrayRecordWriter(str(temporary), _OPTIONS)
    try:
        yield writer
    except BaseException:
        with contextlib.suppress(Exception):
            writer.close()
        raise
    with whole_files.naming(temporary):
        writer.close()


def _sidecar(shard: Path, suffix: str) -> Path:
    return shard.with_name(shard.name + suffix)


def finalise(
    plan: ShardPlan,
    manifest: Manifest,
    vocabulary: Vocabulary,
    *,
    shards: Mapping[str, int],
    skipped: Mapping[str, int],
) -> Manifest:
    """Completes a cache of finished shards: writes index, counts, vocabulary and, last, manifest.

    Args:
      plan: the plan of the shards.
      manifest: the manifest, complete except for `splits` and `content_hash`.
      vocabulary: the vocabulary to save beside the shards.
      shards: the number of shards of each split.
      skipped: the number of documents left out of each split because of invalid UTF-8.

    Raises:
      CacheError: the split 'train' has no tokens.
    """
    directory = Path(plan.directory)
    digest = hashlib.sha256()
    splits = {}
    for split, number in shards.items():
        paths = [directory / shard_name(split, i) for i in range(number)]
        splits[split] = _index_split(
            plan, split, paths, skipped=skipped.get(split, 0), digest=digest
        )
    if "train" in splits and not sum(splits["train"].tokens.values()):
        raise CacheError(f"{manifest.corpus!r} is empty: its split 'train' has no tokens")
    files = _save_vocabulary(vocabulary, directory)
    manifest = dataclasses.replace(
        manifest, splits=splits, files=files, content_hash=digest.hexdigest()
    )
    whole_files.write(directory / MANIFEST, json.dumps(manifest.to_json(), indent=1).encode())
    _clean_up(directory, manifest)
    return manifest


def _save_vocabulary(vocabulary: Vocabulary, directory: Path) -> dict[str, FileSum]:
    """Saves a vocabulary and its arrays beside the shards; returns the sums of its files."""
    for name in FLAGS:
        (directory / flags_name(name)).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary.save(Path(folder))
        for name in FLAGS:
            if (flags := getattr(vocabulary.token_ids, name)) is not None:
                with (Path(folder) / flags_name(name)).open("wb") as file:
                    whole_files.write_array(file, flags)
        files = sorted(Path(folder).iterdir())
        for path in files:
            whole_files.write(directory / path.name, path.read_bytes())
        return {saved.name: FileSum.of(saved) for saved in files}


class _Offsets:
    """The offsets of all records in a file, which a large corpus has billions of.

    They are written and not mapped: a full disk would kill a process that writes to its memory.

    Attributes:
      records: the number of records so far.
      last: int64 [features], the tokens in them.
    """

    def __init__(self, file: IO[bytes], *, features: int, records: int) -> None:
        self._file, self._shape = file, (features, records + 1)
        header = {"descr": "<i8", "fortran_order": False, "shape": self._shape}
        npy.write_array_header_1_0(file, header)
        self._begin = file.tell()
        self.records = -1
        self.last = np.zeros(features, np.int64)
        self.add(np.zeros([1, features], np.int64))

    def add(self, lengths: np.ndarray) -> None:
        """Appends records with these lengths: int64 [records, features]."""
        ends = self.last + np.cumsum(lengths, axis=0)
        for feature, column in enumerate(ends.T):
            place = feature * self._shape[1] + self.records + 1
            self._file.seek(self._begin + place * column.itemsize)
            self._file.write(np.ascontiguousarray(column).data)
        self.records += len(lengths)
        self.last = ends[-1] if len(ends) else self.last


def _index_split(
    plan: ShardPlan,
    split: str,
    paths: list[Path],
    *,
    skipped: int,
    digest: hashlib._Hash,
) -> SplitInfo:
    sidecars = [json.loads(_sidecar(path, ".json").read_text(encoding="utf-8")) for path in paths]
    for sidecar in sidecars:
        digest.update(f"{split} {sidecar['content']}\n".encode())
    records = sum(sidecar["records"] for sidecar in sidecars)
    directory = Path(plan.directory)
    rows = len(plan.features)
    new_document = np.zeros(records, bool)
    counts = np.zeros([rows, plan.vocab_size], np.int64)
    with whole_files.writing(directory / offsets_name(split)) as file:
        offsets = _Offsets(file, features=rows, records=records)
        for path in paths:
            with np.load(_sidecar(path, ".npz"), allow_pickle=False) as arrays:
                new_document[offsets.records :][: len(arrays["lengths"])] = arrays["new_document"]
                offsets.add(arrays["lengths"])
                counts += arrays["counts"]
    for name, array in ((new_document_name(split), new_document), (counts_name(split), counts)):
        with whole_files.writing(directory / name) as file:
            whole_files.write_array(file, array)
    names = [offsets_name(split), new_document_name(split), counts_name(split)]
    return SplitInfo(
        shards=tuple(
            Shard(path.name, sidecar["records"], sidecar["bytes"], sidecar["sha256"])
            for path, sidecar in zip(paths, sidecars, strict=True)
        ),
        records=records,
        documents=sum(sidecar["documents"] for sidecar in sidecars),
        tokens=dict(zip(plan.features, offsets.last.tolist(), strict=True)),
        skipped_documents=skipped,
        index={name: FileSum.of(directory / name) for name in names},
    )


def _clean_up(directory: Path, manifest: Manifest) -> None:
    """Removes sidecars, leftovers of killed writers, and files of an earlier corpus."""
    listed = {shard.file for info in manifest.splits.values() for shard in info.shards}
    for pattern in (
        "*.arrayrecord",
        "*.arrayrecord.json",
        "*.arrayrecord.npz",
        f"*{whole_files.SUFFIX}",
        "*.plan-*",
    ):
        for path in directory.glob(pattern):
            if path.name not in listed:
                path.unlink(missing_ok=True)

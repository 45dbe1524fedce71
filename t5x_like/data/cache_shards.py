"""Writing a cache shard by shard: a killed writer loses the shard it was at, and no other.

Beside a finished shard lie, until the manifest is written, `<shard>.npz` (lengths, document
starts, token counts) and, last of all, `<shard>.json`, which says what the shard was made of.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from t5x_like.data.cache_format import (
    FLAGS,
    FLOAT,
    MANIFEST,
    CacheError,
    Manifest,
    RecordCodec,
    Shard,
    SplitInfo,
    counts_name,
    flags_name,
    new_document_name,
    offsets_name,
    shard_name,
    temporary_name,
    write_atomically,
)
from t5x_like.data.cache_text import Record
from t5x_like.protocols import Vocabulary

_COUNT_EVERY = 1 << 20
# One record a chunk, so that a random read touches nothing else; uncompressed, since token ids
# shrink by a quarter at best (zstd) and decompression would be a third of the time of a read.
_OPTIONS = "group_size:1,uncompressed"


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """Where shards go and what they have in common.

    Attributes:
      recipe: digest of all that decides a shard's bytes besides the text in it.
    """

    directory: str
    features: Mapping[str, str]
    vocab_size: int
    recipe: str

    def finished(self, split: str, number: int, *, content: str | None = None) -> bool:
        """Whether a shard of this recipe (and content, if known) was written before."""
        path = Path(self.directory) / shard_name(split, number)
        try:
            made_of = json.loads(_sidecar(path, ".json").read_text(encoding="utf-8"))
            size = path.stat().st_size
        except (OSError, ValueError):
            return False
        as_planned = made_of["recipe"] == self.recipe and made_of["bytes"] == size
        return as_planned and content in (None, made_of["content"])

    def write(
        self,
        split: str,
        number: int,
        *,
        records: Iterable[Record],
        content: str | Callable[[], str],
    ) -> int:
        """Writes a shard.

        Args:
          split: which split it is of.
          number: its place in the split.
          records: in order.
          content: digest of what it was made of; a function where only reading it all tells.

        Returns:
          The number of records.
        """
        with _ShardFile(self, Path(self.directory) / shard_name(split, number)) as shard:
            for record in records:
                shard.add(record)
            shard.finish(content() if callable(content) else content)
        return len(shard.lengths)


class _ShardFile:
    """A shard while it is being written."""

    def __init__(self, plan: ShardPlan, path: Path) -> None:
        self.plan = plan
        self.path = path
        self.codec = RecordCodec(plan.features)
        self.lengths: list[list[int]] = []
        self.new_document: list[bool] = []
        self.counts = np.zeros([len(plan.features), plan.vocab_size], np.int64)
        self.uncounted: list[list[np.ndarray]] = [[] for _ in plan.features]
        self.uncounted_tokens = 0
        self.temporary = temporary_name(path)
        self.writer = ArrayRecordWriter(str(self.temporary), _OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.writer.is_open():
            self.writer.close()
        self.temporary.unlink(missing_ok=True)

    def add(self, record: Record) -> None:
        self.writer.write(self.codec.encode(record.features, record.segments))
        arrays = [record.features[name] for name in self.plan.features]
        self.lengths.append([len(array) for array in arrays])
        self.new_document.append(record.new_document)
        for pending, array in zip(self.uncounted, arrays, strict=True):
            pending.append(array)
        self.uncounted_tokens += sum(self.lengths[-1])
        if self.uncounted_tokens >= _COUNT_EVERY:
            self.count()

    def count(self) -> None:
        """Adds the pending ids to `counts`.

        Raises:
          CacheError: an id that the vocabulary does not have.
        """
        size = self.plan.vocab_size
        for row, (name, dtype) in enumerate(self.plan.features.items()):
            if dtype == FLOAT or not self.uncounted[row]:
                continue
            ids = np.concatenate(self.uncounted[row])
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
                wrong = int(ids.min()) if ids.min() < 0 else int(ids.max())
                raise CacheError(
                    f"feature {name!r} holds id {wrong}, but its vocabulary has ids 0 to "
                    f"{size - 1}; name the vocabulary that made these ids"
                )
            self.counts[row] += np.bincount(ids, minlength=size)
        self.uncounted = [[] for _ in self.plan.features]
        self.uncounted_tokens = 0

    def finish(self, content: str) -> None:
        self.count()
        self.writer.close()
        self.temporary.rename(self.path)
        lengths = np.asarray(self.lengths, np.int64).reshape(-1, len(self.plan.features))
        temporary = temporary_name(self.path)
        with temporary.open("wb") as file:
            np.savez_compressed(
                file,
                lengths=lengths,
                new_document=np.asarray(self.new_document, bool),
                counts=self.counts,
            )
        temporary.rename(_sidecar(self.path, ".npz"))
        made_of = {
            "recipe": self.plan.recipe,
            "content": content,
            "bytes": self.path.stat().st_size,
            "records": len(self.lengths),
            "documents": sum(self.new_document),
        }
        write_atomically(_sidecar(self.path, ".json"), json.dumps(made_of).encode())


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
    """Makes a complete cache of finished shards: index, counts, vocabulary, and the manifest last.

    Args:
      plan: by which the shards were written.
      manifest: complete but for `splits` and `content_hash`.
      vocabulary: saved beside the shards.
      shards: how many each split has.
      skipped: documents left out of each split for invalid UTF-8.

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
        raise CacheError(f"{manifest.corpus!r} is empty: not one token in its split 'train'")
    vocabulary.save(directory)
    for name in FLAGS:
        (directory / flags_name(name)).unlink(missing_ok=True)
        if (flags := getattr(vocabulary.token_ids, name)) is not None:
            np.save(directory / flags_name(name), flags)
    manifest = dataclasses.replace(manifest, splits=splits, content_hash=digest.hexdigest())
    write_atomically(directory / MANIFEST, json.dumps(manifest.to_json(), indent=1).encode())
    _clean_up(directory, manifest)
    return manifest


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
    names = [offsets_name(split), new_document_name(split), counts_name(split)]
    temporary = [temporary_name(directory / name) for name in names]
    rows = len(plan.features)
    # Mapped, not built in memory: a large corpus has billions of records.
    offsets = np.lib.format.open_memmap(temporary[0], "w+", np.int64, (rows, records + 1))
    new_document = np.zeros(records, bool)
    counts = np.zeros([rows, plan.vocab_size], np.int64)
    offsets[:, 0] = 0
    done = 0
    for path in paths:
        with np.load(_sidecar(path, ".npz"), allow_pickle=False) as arrays:
            end = done + len(arrays["lengths"])
            lengths = np.cumsum(arrays["lengths"], axis=0).T
            offsets[:, done + 1 : end + 1] = offsets[:, done : done + 1] + lengths
            new_document[done:end] = arrays["new_document"]
            counts += arrays["counts"]
            done = end
    offsets.flush()
    np.lib.format.open_memmap(temporary[1], "w+", bool, (records,))[:] = new_document
    np.lib.format.open_memmap(temporary[2], "w+", np.int64, counts.shape)[:] = counts
    for path, name in zip(temporary, names, strict=True):
        path.rename(directory / name)
    return SplitInfo(
        shards=tuple(
            Shard(path.name, sidecar["records"], sidecar["bytes"])
            for path, sidecar in zip(paths, sidecars, strict=True)
        ),
        records=records,
        documents=sum(sidecar["documents"] for sidecar in sidecars),
        tokens=dict(zip(plan.features, offsets[:, -1].tolist(), strict=True)),
        skipped_documents=skipped,
        index_bytes={name: (directory / name).stat().st_size for name in names},
    )


def _clean_up(directory: Path, manifest: Manifest) -> None:
    """Removes sidecars, leftovers of killed writers, and what was there of an earlier corpus."""
    kept = {shard.file for info in manifest.splits.values() for shard in info.shards}
    for pattern in (
        "*.arrayrecord",
        "*.arrayrecord.json",
        "*.arrayrecord.npz",
        "*.tmp",
        "*.plan-*",
    ):
        for path in directory.glob(pattern):
            if path.name not in kept:
                path.unlink(missing_ok=True)

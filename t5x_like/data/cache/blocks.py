"""The division of a corpus into blocks of text, each of which becomes a shard of its cache.

A block is the next documents of a split until they have enough bytes. The last one of a split has
the rest. So the blocks depend on the text alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from t5x_like.data.corpora import text_pieces
from t5x_like.data.corpora.corpus import Document


@dataclasses.dataclass
class Place:
    """The place of a split's next document.

    Attributes:
      shard: the number of its shard.
      bytes: the bytes of the documents before it in that shard.
    """

    shard: int = 0
    bytes: int = 0

    def add(self, size: int, *, block: int) -> bool:
        """Goes past a document of `size` bytes. Returns whether it fills its block."""
        self.bytes += size
        if self.bytes < block:
            return False
        self.shard += 1
        self.bytes = 0
        return True

    def has_all_of(self, shard: int, size: int, *, block: int) -> bool:
        """Whether `size` bytes are all of a shard, if this place is behind all documents."""
        return size >= block or (shard, size) == (self.shard, self.bytes)

    @property
    def shards(self) -> int:
        """The number of shards, if no document follows."""
        return self.shard + bool(self.bytes)


@dataclasses.dataclass(frozen=True)
class Part:
    """Documents of one shard that follow each other.

    Attributes:
      begin: the bytes of the shard's documents before these.
      bytes: the bytes of the documents.
      whole: whether they fill the block of the shard.
    """

    split: str
    shard: int
    documents: list[Document]
    begin: int
    bytes: int
    whole: bool


def parts(
    documents: Iterable[tuple[str, Document]], places: Mapping[str, Place], *, block: int
) -> Iterator[Part]:
    """Documents with their splits, divided into the parts of shards.

    Args:
      documents: the documents, in order; none is empty.
      places: where the first document of each split goes; goes along with the documents.
      block: the bytes that fill a block.
    """
    gathered: dict[str, list[Document]] = {split: [] for split in places}
    begin = {split: place.bytes for split, place in places.items()}
    for split, document in documents:
        place = places[split]
        shard, size = place.shard, size_of(document)
        end = place.bytes + size
        gathered[split].append(document)
        if place.add(size, block=block):
            start = begin[split]
            yield Part(split, shard, gathered[split], start, end - start, whole=not start)
            gathered[split], begin[split] = [], 0
    for split, rest in gathered.items():
        place, start = places[split], begin[split]
        if rest:
            yield Part(split, place.shard, rest, start, place.bytes - start, whole=False)


def size_of(document: Document) -> int:
    """The bytes of a document: of texts in UTF-8, of numbers as they are stored."""
    return sum(map(_size, document.values()))


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    return int(value.nbytes)


def content_of(documents: Iterable[Document]) -> str:
    """The digest of the documents of a block, by which a finished shard is known again."""
    digest = hashlib.sha256()
    for document in documents:
        if text_pieces.continues(document):
            digest.update(b"more of it: ")
        for column, value in document.items():
            data = value.encode() if isinstance(value, str) else value.tobytes()
            digest.update(f"{column} {len(data)} ".encode())
            digest.update(data)
    return digest.hexdigest()

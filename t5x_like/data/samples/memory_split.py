"""A split of documents in memory, from which samples are made as from the split of a cache."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from t5x_like.data.cache.record_codec import Joined

Document = tuple[np.ndarray, np.ndarray]


class MemorySplit:
    """A split in which each document is one record of `targets`.

    Args:
      documents: for each document, its tokens (int [n]) and the positions at which segments start
        (int [S], where S is 0 for a document that is one segment).
    """

    name = "memory"
    directory: Path | None = None
    content = ""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._documents = [
            (np.asarray(tokens, np.int32), np.asarray(segments, np.int32))
            for tokens, segments in documents
        ]

    def __len__(self) -> int:
        return len(self._documents)

    @functools.cached_property
    def offsets(self) -> Mapping[str, np.ndarray]:
        """{"targets": int64 [records + 1]}: the number of tokens before each record."""
        lengths = [len(tokens) for tokens, _ in self._documents]
        return {"targets": np.cumsum([0, *lengths], dtype=np.int64)}

    @property
    def new_document(self) -> np.ndarray:
        """bool [records], all True."""
        return np.ones(len(self), bool)

    def record(self, i: int) -> dict[str, np.ndarray]:
        """{"targets": int32 [n]}. The caller may change the array."""
        return {"targets": self._documents[i][0].copy()}

    def raw_feature(self, i: int, feature: str) -> np.ndarray:
        """int32 [n]: the tokens of record `i`. The caller must not change them."""
        del feature  # there is only one
        return self._documents[i][0]

    def joined(self, begin: int, end: int, feature: str) -> Joined:
        """The tokens and segments of documents `begin` to `end` - 1."""
        del feature
        none = np.zeros(0, np.int32), np.zeros(0, np.int32)
        tokens, segments = zip(*self._documents[begin:end], none, strict=True)
        counts = np.array(list(map(len, segments[:-1])), np.int64)
        return Joined(np.concatenate(tokens), np.concatenate(segments), counts)

    def segments(self, i: int) -> np.ndarray:
        """int32 [S]: the positions in record `i` at which a segment starts."""
        return self._documents[i][1]

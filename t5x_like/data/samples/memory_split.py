"""Documents in memory that samples are made of as from the split of a cache."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

Document = tuple[np.ndarray, np.ndarray]


class MemorySplit:
    """Each document one record of `targets`.

    Args:
      documents: of each its tokens (int [n]) and the positions in them at which segments start
        (int [S], S 0 for a document that is one segment).
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
        """{"targets": int64 [records + 1]}: tokens before each record."""
        lengths = [len(tokens) for tokens, _ in self._documents]
        return {"targets": np.cumsum([0, *lengths], dtype=np.int64)}

    @property
    def new_document(self) -> np.ndarray:
        """bool [records], all True."""
        return np.ones(len(self), bool)

    def record(self, i: int) -> dict[str, np.ndarray]:
        """{"targets": int32 [n]}; an array of the caller's own."""
        return {"targets": self._documents[i][0].copy()}

    def raw_feature(self, i: int, feature: str) -> np.ndarray:
        """int32 [n]: the tokens of record `i`, not to be changed."""
        del feature  # there is one only
        return self._documents[i][0]

    def segments(self, i: int) -> np.ndarray:
        """int32 [S]: the positions in record `i` at which a segment starts."""
        return self._documents[i][1]

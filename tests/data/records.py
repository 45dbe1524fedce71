"""Records in memory, of documents cut at random, and their stream, computed in a simple way."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import strategies as st

from t5x_like.data.samples.memory_split import MemorySplit


class RecordsSplit(MemorySplit):
    """Records of (tokens, starts of segments, whether a document begins)."""

    def __init__(self, records: list[tuple[list[int], list[int], bool]]) -> None:
        super().__init__((tokens, segments) for tokens, segments, _ in records)
        self._new_document = np.array([new for _, _, new in records], bool)

    @property
    def new_document(self) -> np.ndarray:
        return self._new_document


@dataclasses.dataclass(frozen=True)
class Plainly:
    """A stream as Python lists.

    Attributes:
      tokens: the tokens of the stream, separators included.
      documents: for each document, the offsets at which its segments start, then its end.
    """

    tokens: list[int]
    documents: list[list[int]]

    @classmethod
    def of(cls, records: list[tuple[list[int], list[int], bool]], separator: int | None) -> Plainly:
        whole: list[tuple[list[int], set[int]]] = []
        for tokens, segments, new in records:
            if new or not whole:
                whole.append(([], set()))
            text, starts = whole[-1]
            starts.update(len(text) + segment for segment in segments)
            text += tokens
        stream: list[int] = []
        documents = []
        for text, starts in whole:
            if text:
                begin = len(stream)
                stream += text if separator is None else [*text, separator]
                documents.append([*(begin + start for start in sorted(starts | {0})), len(stream)])
        return cls(stream, documents)


@st.composite
def records(draw: st.DrawFn) -> list[tuple[list[int], list[int], bool]]:
    """Up to 12 records of up to 9 tokens, some empty, with segments or without."""
    made = []
    for number in range(draw(st.integers(1, 12))):
        length = draw(st.sampled_from([0, 1, 2, 5, 9]))
        tokens = [100 * number + i for i in range(length)]
        segments = draw(st.sets(st.integers(0, length - 1))) if length else set()
        made.append((tokens, sorted(segments), draw(st.booleans())))
    return made


RECORDS = records()
SEPARATORS = st.sampled_from([None, -7])

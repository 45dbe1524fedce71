"""Corpora in memory for tests of plans: documents given by the lengths of their segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

CORPORA = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=6)
SEEDS = st.integers(0, 2**32 - 1)


class InMemory:
    """A `geometry.Sentences`; a separator, where there are any, is a token of a last segment."""

    def __init__(
        self, documents: Sequence[Sequence[int]], begins_word: np.ndarray | None = None
    ) -> None:
        self.begins_word = begins_word
        self.documents = []
        self.total = 0
        for segments in documents:
            self.documents.append(self.total + np.cumsum([0, *segments], dtype=np.int64))
            self.total += sum(segments)

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, document: int) -> np.ndarray:
        return self.documents[document]

    def heads(self, documents: range) -> np.ndarray:
        return self.starts[documents.start : documents.stop + 1]

    def bounds(self, documents: range) -> np.ndarray:
        some = self.documents[documents.start : documents.stop]
        return np.unique(np.concatenate([self.heads(documents), *some]))

    def remember(self, documents: range) -> None:
        assert 0 <= documents.start < documents.stop <= len(self)

    def word_starts(self, start: int, end: int) -> np.ndarray:
        if self.begins_word is None:
            return np.ones(end - start, bool)
        return self.begins_word[start:end]

    @property
    def starts(self) -> np.ndarray:
        """int64 [documents + 1]: where each document starts, then the end of all."""
        return np.array([*(bounds[0] for bounds in self.documents), self.total])

    @property
    def segment_starts(self) -> np.ndarray:
        """int64 [segments]: where each segment starts, of all documents in order."""
        return np.concatenate([bounds[:-1] for bounds in self.documents])

    def document_at(self, offsets: np.ndarray) -> np.ndarray:
        """The document in which the token at each offset lies."""
        return np.searchsorted(self.starts, offsets, side="right") - 1


def planned(geometry, documents, seed=0, begins_word=None) -> dict[str, np.ndarray]:
    """The columns of a plan of the corpus of these documents: int64 [rows] each."""
    corpus = InMemory(documents, begins_word)
    blocks = list(geometry.plan(corpus, np.random.default_rng(seed), range(len(corpus))))
    assert all(map(len, blocks))
    table = np.concatenate([np.zeros((0, len(geometry.columns)), np.int64), *blocks])
    assert table.dtype == np.int64
    return dict(zip(geometry.columns, table.T, strict=True))


def sigmas(count: int, draws: int, probability: float) -> float:
    """How many standard deviations a count of draws lies from what a probability makes likely."""
    return abs(count - draws * probability) / np.sqrt(draws * probability * (1 - probability))

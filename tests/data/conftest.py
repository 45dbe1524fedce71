"""A corpus in memory, and its cache under bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest

from t5x_like.core.protocols.data import PLAIN_TEXT, Column
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora.corpus import Corpus, ReadReport
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning.sentencepiece_training import train_sentencepiece

# A busy machine must not fail a property.
hypothesis.settings.register_profile(
    "no deadline", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("no deadline")

Document = str | dict[str, str]


class MemoryCorpus(Corpus):
    """Documents in a list for each split; plain strings are targets."""

    held_out = None

    def __init__(self, train: Sequence[Document], validation: Sequence[Document] = ()) -> None:
        self.name = "memory"
        self._splits = {"train": train, "validation": validation}

    @property
    def columns(self) -> tuple[Column, ...]:
        first = next(iter(self._splits["train"]), "")
        return PLAIN_TEXT if isinstance(first, str) else tuple(map(Column, first))

    def read(self, split: str, report: ReadReport) -> Iterator[dict[str, str]]:
        for document in self._splits[split]:
            yield {"targets": document} if isinstance(document, str) else document

    def fingerprint(self) -> str:
        return hashlib.sha256(repr(self._splits).encode()).hexdigest()

    def description(self) -> str:
        return "in memory"


@pytest.fixture(scope="session")
def make_corpus() -> type[MemoryCorpus]:
    return MemoryCorpus


@pytest.fixture
def make_cache(tmp_path: Path) -> Callable[..., Cache]:
    """`make_cache(train, validation)`: the cache of documents as bytes."""

    def make(train: Sequence[Document], validation: Sequence[Document] = ("held out",)) -> Cache:
        directory = tmp_path / f"cache{len(list(tmp_path.iterdir()))}"
        corpus = MemoryCorpus(train, validation)
        write_cache(directory, corpus, ByteVocabulary(), workers=1, progress=False)
        return Cache.open(directory)

    return make


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model of 60 pieces."""
    documents = [
        {"targets": f"the quick brown fox number {i} jumps over {i * i}"} for i in range(200)
    ]
    path = tmp_path_factory.mktemp("spm") / "tiny.model"
    return train_sentencepiece(
        (document["targets"] for document in documents), path, vocab_size=60, progress=False
    )

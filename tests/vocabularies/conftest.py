"""A tiny SentencePiece model."""

from pathlib import Path

import pytest

from t5x_like.vocabularies import training

TEXT = [
    "The quick brown fox jumps over the lazy dog while walking in the park.",
    "She was talking and walking, and he was reading a book about talking animals.",
    "Working people walk to work; running people are running in the morning.",
]


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sentencepiece") / "tiny.model"
    return training.train_sentencepiece(
        TEXT * 10, path, vocab_size=90, model_type="bpe", progress=False
    )

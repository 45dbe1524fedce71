"""A tiny vocabulary of every kind, trained on the same few sentences."""

from pathlib import Path

import pytest

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.vocabularies import loading
from t5x_like.vocabularies.learning import sentencepiece_training, vocabulary_recipe

TEXT = [
    "The quick brown fox jumps over the lazy dog while walking in the park.",
    "She was talking and walking, and he was reading a book about talking animals.",
    "Working people walk to work; running people are running in the morning.",
]


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sentencepiece") / "tiny.model"
    return sentencepiece_training.train_sentencepiece(
        TEXT * 10, path, vocab_size=97, model_type="bpe", progress=False
    )


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Vocabulary]:
    """Trained vocabularies, by kind."""
    sizes = {"unigram": 60, "wordpiece": 150, "byte_bpe": 330}
    folder = tmp_path_factory.mktemp("trained")
    made = {}
    for kind in vocabulary_recipe.KINDS:
        path = folder / (f"{kind}.model" if kind in sentencepiece_training.MODEL_TYPES else kind)
        recipe = vocabulary_recipe.Recipe(
            kind=kind, size=sizes.get(kind, 80), character_coverage=1.0
        )
        made[kind] = loading.load(vocabulary_recipe.train(TEXT * 10, path, recipe, progress=False))
    return made

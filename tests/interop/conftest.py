"""Vocabularies of every kind, trained on Python's own library, and text to compare them on."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

import pytest

from t5x_like.core.protocols.data import Vocabulary
from t5x_like.vocabularies import loading
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning import sentencepiece_training, vocabulary_recipe

sys.path.insert(0, str(Path(__file__).parent))  # for `parity`

from odd_texts import ODD

MODULES = "argparse ast csv datetime email http inspect json random statistics textwrap typing"


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """Code with its documentation; the same in every process."""
    return [inspect.getsource(importlib.import_module(name))[:20_000] for name in MODULES.split()]


@pytest.fixture(scope="session")
def texts(documents: list[str]) -> list[str]:
    """Lines and paragraphs of the library, and odd ones."""
    text = "\n".join(documents)
    return [*text.split("\n")[::10], *text.split("\n\n")[::5], *ODD]


@pytest.fixture(scope="session")
def vocabularies(
    tmp_path_factory: pytest.TempPathFactory, documents: list[str]
) -> dict[str, Vocabulary]:
    """Trained vocabularies, by kind."""
    folder = tmp_path_factory.mktemp("vocabularies")
    made: dict[str, Vocabulary] = {"bytes": ByteVocabulary(), "bytes_100": ByteVocabulary(100)}
    named = {kind: {"kind": kind} for kind in vocabulary_recipe.KINDS}
    named |= {
        f"{kind}_bytes": {"kind": kind, "byte_fallback": True}
        for kind in sentencepiece_training.MODEL_TYPES
    }
    named["wordpiece_uncased"] = {"kind": "wordpiece", "lowercase": True}
    for name, fields in named.items():
        recipe = vocabulary_recipe.Recipe(
            size=1200, max_sentences=2000, character_coverage=0.999, **fields
        )
        path = folder / (f"{name}.model" if recipe.makes_file else name)
        made[name] = loading.load(vocabulary_recipe.train(documents, path, recipe, progress=False))
    return made

"""Vocabularies of every kind, trained on Python's own library, and text to compare them on."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

import pytest

from t5x_like.core.protocols import Vocabulary
from t5x_like.vocabularies import loading
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.learning import sentencepiece_training, vocabulary_recipe

sys.path.insert(0, str(Path(__file__).parent))  # for `parity`

MODULES = "argparse ast csv datetime email http inspect json random statistics textwrap typing"
ODD = (
    "|a  b|a\r\nb|\r\n| \n\t x|a\x85|\x00a\x7f|\ufeffbom|a\u00a0b|\u200bz\u200c|\u3000x|a ▁b|"
    "e\u0301|\u0301|👩‍👩‍👧|❤️|\U0001d518\U0001d52b\U0001d526|½|…|™|ﬁ|\uff21\uff11|İstanbul ΣΑΣ|"
    "한국어|हिन्दी|ไทย กำ|日本語テキスト|"
    "Größe, Žižek: naïve!|don't I'll  we've|x_y-z 12345|``quoted''"
).split("|")


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

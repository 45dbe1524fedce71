"""Word analogies: their files, and which word is nearest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flax import nnx

from t5x_like.evaluation.language import analogies
from t5x_like.evaluation.language.results import Settings
from t5x_like.models import bert
from t5x_like.vocabularies.learning.subword_training import train_wordpiece

WORDS = ("man", "king", "woman", "queen", "apple")
LINES = ": royal\nman king woman queen\n: other\nman woman king queen\nking man queen apple\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "a.txt").write_text(LINES)
    return str(tmp_path / "a.txt")


def test_lines_belong_to_the_section_before_them(file: str, tmp_path: Path) -> None:
    assert [a.section for a in analogies.read(file)] == ["royal", "other", "other"]
    (tmp_path / "a.txt").write_text("a b c\n")
    with pytest.raises(ValueError, match=r"a\.txt:1: 'a b c' has 3 words, and not 4"):
        analogies.read(file)


def test_the_fourth_word_is_looked_for_among_all_but_the_three(file: str) -> None:
    text = " ".join(WORDS)
    vocabulary = train_wordpiece(
        [text] * 9, size=90, extra_ids=0, character_coverage=1.0, lowercase=True
    )
    config = bert.Config(
        vocab_size=vocabulary.vocab_size, d_model=4, d_ff=8, num_heads=2, num_layers=1
    )
    model = bert.Bert(config, rngs=nnx.Rngs(0))
    table = np.zeros((vocabulary.vocab_size, 4), np.float32)
    places = ([1, 1, 0, 0], [1, 1, 1, 0], [1, -1, 0, 0], [1, -1, 1, 0], [0, 0, 0, 1])
    for word, place in zip(WORDS, places, strict=True):
        (token,) = vocabulary.encode(word)
        table[token] = place
    model.encoder.embedding.tokens.table[...] = table
    loaded = SimpleNamespace(model=model, vocabulary=vocabulary)
    results = analogies.evaluate(loaded, file, Settings())
    by_name = {row.name: row for row in results.rows}
    assert by_name["royal"].values["accuracy"] == 1.0
    assert by_name["other"].values["accuracy"] == 0.5  # the apple is nowhere near
    assert by_name["all"].size == 3
    assert by_name["all"].values["covered"] == 1.0
    assert by_name["all"].values["of these"] == pytest.approx(2 / 3)


def test_a_word_of_several_tokens_has_their_mean(file: str) -> None:
    vocabulary = train_wordpiece(
        ["m a n"] * 9, size=20, extra_ids=0, character_coverage=1.0, lowercase=True
    )
    table = np.random.default_rng(0).normal(size=(vocabulary.vocab_size, 4))
    vectors, known = analogies.vectors(["man", "m"], table, vocabulary)
    tokens = vocabulary.encode("man")
    assert (len(tokens) == 1, known[1]) == (bool(known[0]), True)
    mean = table[tokens].mean(axis=0)
    np.testing.assert_allclose(vectors[0], mean / np.linalg.norm(mean))

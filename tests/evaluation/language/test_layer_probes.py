"""What probes read of a model's states, and the floors beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import stored_berts

import t5x_like as t5x
from t5x_like.evaluation.language import layer_probes
from t5x_like.evaluation.language.layer_probes import Texts
from t5x_like.evaluation.language.results import Settings
from t5x_like.evaluation.language.tagged_words import Tagged

WORDS = ["the", "walker", "walks"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> t5x.LoadedModel:
    directory = tmp_path_factory.mktemp("models") / "bert"
    return t5x.load(stored_berts.write_untrained(directory, "the walk er s", vocab_size=60))


def test_a_word_has_the_state_of_its_first_token(model: t5x.LoadedModel) -> None:
    reader = model.predictor("embed", layer=1, pooling="tokens")
    sentences = [Tagged(WORDS, ["D", "N", "V"], [False] * 3), Tagged(["walks"], ["V"], [False])]
    states, labels = layer_probes.features(reader, sentences, model.vocabulary)
    assert labels.tolist() == ["D", "N", "V", "V"]
    (whole,) = model.hidden([" ".join(WORDS)], layer=1)
    begins = np.cumsum([1, *(len(model.vocabulary.encode(word)) for word in WORDS)])[:-1]
    np.testing.assert_allclose(states[:3], whole[begins], atol=1e-5)
    assert len(whole) > len(WORDS) + 2  # some words have several tokens
    assert reader.depth() == 1


def test_words_that_are_cut_off_are_left_out(model: t5x.LoadedModel) -> None:
    reader = model.predictor("embed", layer=0, pooling="tokens", max_input_length=4)
    sentences = [Tagged(["the"] * 5, [*"abcde"], [False] * 5), Tagged(["the"], ["f"], [False])]
    states, labels = layer_probes.features(reader, sentences, model.vocabulary)
    assert labels.tolist() == ["a", "b", "f"]
    assert states.shape == (3, 32)


def test_a_text_has_the_mean_of_its_tokens_and_the_first_state(model: t5x.LoadedModel) -> None:
    reader = model.predictor("embed", pooling="tokens")
    states, labels = layer_probes.features(reader, Texts(["the walk"], ["x"]), model.vocabulary)
    (whole,) = model.hidden(["the walk"])
    want = np.concatenate([whole[1:-1].mean(axis=0), whole[0]])
    np.testing.assert_allclose(states[0], want, atol=1e-5)
    assert labels.tolist() == ["x"]


def test_floors_know_the_commonest_label_and_that_of_each_word() -> None:
    train = [Tagged(["A", "run", "a", "run"], ["D", "N", "D", "V"]), Tagged(["run"], ["V"])]
    held_out = [Tagged(["a", "run", "new", "run"], ["D", "V", "D", "N"])]
    assert layer_probes._floors(train, held_out) == {
        "commonest label": 0.5,
        "commonest tag of the word": 0.75,
    }
    texts = Texts(["a", "b", "c"], ["x", "y", "x"])
    assert layer_probes._floors(texts, texts) == {"commonest label": pytest.approx(2 / 3)}


def test_two_texts_a_row_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("sentence1\tsentence2\tlabel\na\tb\tc\nd\te\tf\n")
    with pytest.raises(ValueError, match="a probe reads one text a row, and not sentence1 and"):
        layer_probes.read([str(file)], Settings())

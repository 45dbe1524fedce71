"""Tags of words from a file, through the cache and training, to answers and to Hugging Face."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from typing import Any

import labelled
import pytest
from tiny_run import Tiny

import t5x_like as t5x

WORDS = {
    "LOC": ["Paris", "Rome", "Amsterdam"],
    "O": ["sees", "of", "the", "."],
    "ORG": ["Unicef", "Interpol"],
    "PER": ["Ada", "Wolfgang", "Jean-Luc"],
}
TAG = {word: tag for tag, several in WORDS.items() for word in several}
train = functools.partial(labelled.train, "tags.gin", VOCAB_SIZE=128)


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences whose tags follow from the words; the vocabulary cuts some words into pieces."""
    draw = random.Random(0)
    lines = ["-DOCSTART-\tO", ""]
    for n in range(240):
        words = draw.choices([*TAG], k=draw.randint(2, 5))
        lines += [
            f"# sentence {n}",
            *(f"{word}\t_\t{TAG[word]}" for word in words),
            f"{n}\t_\tO",
            "",
        ]
    path = tmp_path_factory.mktemp("tags") / "news.conll"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
def test_a_head_learns_tags_and_goes_to_hugging_face_with_them(tiny: Tiny, tagged: Path) -> None:
    result = train(tiny, tagged, TRAIN_STEPS=30)
    assert result.status == 0, result.err
    run = tiny.root / "run"
    assert json.loads((run / "labels.json").read_text()) == {"tags": ["LOC", "O", "ORG", "PER"]}
    assert "news lose their last words and the tags of these: they have more than 10" in result.err
    again = train(tiny, tagged)
    assert again.status == 0, again.err
    labelled.assert_learned(run, "news")
    model = t5x.load(str(run))
    words = ["Jean-Luc", "sees", "Amsterdam", "."]
    assert any(len(model.vocabulary.encode(word)) > 1 for word in words)
    (answer,) = model.predict([{"inputs": words}])
    assert answer == {"words": words, "tags": [TAG[word] for word in words]}
    assert model.predict(" ".join(words)) == answer
    (answer,) = model.predict([{"inputs": words * 4}], max_input_length=12)
    whole = answer["tags"].index(None)
    assert answer["truncated"]
    assert 0 < whole < len(words) * 4
    assert not any(answer["tags"][whole:])
    for wrong in ([], ["Ada", 3]):
        with pytest.raises(ValueError, match="`inputs` may be a list, of texts that are words"):
            model.predict([{"inputs": wrong}])
    found = model.evaluate(corpus=str(tagged))["news"]
    assert found["trained"]["accuracy"] > 0.95
    other = tiny.root / "other.conll"
    other.write_text("Ada\tPER\nsees\tMISC\n")
    with pytest.raises(ValueError, match="holds the label 'MISC', which is not one of LOC, O"):
        model.evaluate(corpus=str(other))
    model.export(tiny.root / "theirs")
    config = json.loads((tiny.root / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert config["id2label"] == {"0": "LOC", "1": "O", "2": "ORG", "3": "PER"}


@pytest.mark.parametrize(
    ("macros", "error"),
    [
        ({"NUM_LABELS": 3}, "has 4 classes (LOC, O, ORG, PER), but the head names 3: set its"),
        (
            {"OBJECTIVE": "classes", "CORPUS_FIELD": {"inputs": "words", "label": "tags"}},
            "Classes learns classes, but a FineTuned names tags: give its body a head "
            "(models.finetuned.FineTuned with a SequenceHead)",
        ),
    ],
)
def test_what_does_not_fit_is_said_before_training(
    macros: dict[str, Any], error: str, tiny: Tiny, tagged: Path
) -> None:
    result = train(tiny, tagged, **macros)
    labelled.assert_refused(tiny, result, error)

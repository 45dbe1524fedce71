"""Labels from a file, through the cache and training, to answers and to Hugging Face."""

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

COLUMNS = {"inputs": "sentence", "label": "sentiment"}
train = functools.partial(labelled.train, "classes.gin", CORPUS_FIELD=COLUMNS, VOCAB_SIZE=256)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences whose sentiment is that of their adjective; each adjective in many of them."""
    draw = random.Random(0)
    words = {"good": ["fine", "lovely", "great"], "bad": ["dull", "poor", "awful"]}
    lines = ["sentence\tyear\tsentiment"]
    for n in range(240):
        label = draw.choice([*words])
        thing = draw.choice(["film", "book", "song", "play", "story"])
        lines.append(f"a {draw.choice(words[label])} {thing}, number {n}\t1999\t{label}")
    path = tmp_path_factory.mktemp("labels") / "reviews.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
def test_a_head_learns_names_and_goes_to_hugging_face_with_them(tiny: Tiny, table: Path) -> None:
    result = train(tiny, table, TRAIN_STEPS=30)
    assert result.status == 0, result.err
    assert "columns are not read: year" in result.err
    run = tiny.root / "run"
    assert json.loads((run / "labels.json").read_text()) == {"label": ["bad", "good"]}
    again = train(tiny, table)
    assert again.status == 0, again.err
    labelled.assert_learned(run, "reviews")
    model = t5x.load(str(run))
    answers = model.predict(["a lovely play, number 9", "a dull film, number 7"])
    assert [one["label"] for one in answers] == ["good", "bad"]
    assert {*answers[0]["probabilities"]} == {"bad", "good"}
    scores = model.evaluate(corpus=str(table))["reviews"]["trained"]
    assert scores["accuracy"] > 0.95
    # Other files are read by the run's names: all of one class, or one that it has not learned.
    rows = [line for line in table.read_text().splitlines() if line.endswith(("good", "sentiment"))]
    for name, last in (("fine", []), ("odd", ["a grey film, number 9\t1999\tfair"])):
        (tiny.root / f"{name}.tsv").write_text("\n".join([*rows, *last]) + "\n")
    scores = model.evaluate(corpus=f"{tiny.root}/fine.tsv")["fine"]["trained"]
    assert scores["accuracy"] > 0.95
    with pytest.raises(ValueError, match="holds the label 'fair', which is not one of bad, good"):
        model.evaluate(corpus=f"{tiny.root}/odd.tsv")
    model.export(tiny.root / "theirs")
    config = json.loads((tiny.root / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "bad", "1": "good"}


@pytest.mark.parametrize(
    ("macros", "error"),
    [
        ({"NUM_LABELS": 3}, "has 2 classes (bad, good), but the head names 3: set its num_labels"),
        (
            {"CORPUS_FIELD": None},
            "has the columns sentence, year, sentiment, but Classes reads inputs and label: say "
            "which columns these are with CORPUS_FIELD={'inputs': '...', 'label': '...'}",
        ),
        (
            {"CORPUS_FIELD": "sentence", "OBJECTIVE": "mlm"},
            "with a head for classes learns from labels, but MaskedLM makes none of plain text",
        ),
    ],
)
def test_what_does_not_fit_is_said_before_training(
    macros: dict[str, Any], error: str, tiny: Tiny, table: Path
) -> None:
    result = train(tiny, table, **macros)
    labelled.assert_refused(tiny, result, error)

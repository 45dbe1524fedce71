"""From a pretrained model and questions to answers as spans: `t5x.finetune` and the command."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stored_berts
import stored_xlnets
from tiny_run import Result, losses

import t5x_like as t5x
from t5x_like.training.logs.metrics_file import read_metrics

NAMES = ["Ada", "Bert", "Cleo", "Dora"]
PLACES = ["Paris", "Rome", "Oslo", "Lima"]
TEXT = " ".join([*NAMES, *PLACES, "lives in the old town of . where is it nothing happens"])


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT that has learned nothing yet."""
    directory = tmp_path_factory.mktemp("models") / "mine"
    return stored_berts.write_untrained(directory, TEXT, vocab_size=120)


def paragraphs(count: int, draw: random.Random) -> dict[str, Any]:
    """Texts of which every third names no place; all are longer than a window."""
    articles = []
    for number in range(count):
        filler = ["Nothing happens."] * 8
        place = draw.choice(PLACES)
        if possible := number % 3 > 0:
            filler[draw.randrange(8)] = f"{draw.choice(NAMES)} lives in {place}."
        context = " ".join(filler)
        answers = [{"text": place, "answer_start": context.index(place)}] if possible else []
        qas = [
            {
                "id": str(number),
                "question": "Where is it?",
                "answers": answers,
                "is_impossible": not possible,
            }
        ]
        articles.append({"title": "t", "paragraphs": [{"context": context, "qas": qas}]})
    return {"version": "v2.0", "data": articles}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, draw = tmp_path_factory.mktemp("questions"), random.Random(0)
    named = {}
    for name, count in (("train", 90), ("dev", 30)):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(paragraphs(count, draw)))
        named[name] = str(path)
    return named


def last(run: Path, name: str) -> float:
    lines = read_metrics(run / "metrics.jsonl")
    return [line[f"eval/{name}"] for line in lines if f"eval/{name}" in line][-1]


@pytest.mark.slow
def test_spans_are_learned_in_windows_resumed_and_asked(
    pretrained: Path, files: dict[str, str], tmp_path: Path, cli: Callable[..., Result]
) -> None:
    def run(name: str) -> t5x.Pretraining:
        return t5x.finetune(
            str(pretrained),
            **files,
            model_dir=str(tmp_path / name),
            cache_dir=str(tmp_path / "cache"),
            epochs=6,
            learning_rate=1e-2,
            batch_size=32,
            length=24,
            stride=8,
            gin=["LOG_PERIOD=1"],
        )

    straight = run("straight")
    notes = " ".join(straight.notes)
    assert "answers to 'question' as spans of 'context', and that 30 of the" in notes
    assert "90 questions are read in" in notes
    assert straight.train().status == "finished"
    for step in run("broken").steps():
        if step.step == 17:
            break
    assert run("broken").train().status == "finished"
    assert losses(tmp_path / "broken") == losses(tmp_path / "straight")
    scores = {
        name: last(tmp_path / "broken", f"train/{name}")
        for name in ("exact", "f1", "HasAns_f1", "NoAns_f1", "best_f1", "best_f1_thresh")
    }
    assert scores["best_f1"] > 0.95, scores
    model = t5x.load(str(tmp_path / "broken"))
    evaluated = model.evaluate(corpus=files["dev"])["dev"]["trained"]
    assert evaluated["best_f1"] == pytest.approx(scores["best_f1"])
    context = "Nothing happens. " * 12 + "Dora lives in Oslo. " + "Nothing happens. " * 3
    asked = [
        {"inputs": "Where is it?", "context": context},
        {"inputs": "Where is it?", "context": "Nothing happens. " * 12},
    ]
    (yes, no) = model.predict(asked)
    threshold = scores["best_f1_thresh"]
    assert (yes["answer"], yes["has_answer"]) == ("Oslo", True)
    assert (no["answer"], no["has_answer"]) == ("", False)
    assert yes["no_answer"] <= threshold < no["no_answer"]
    (_, never) = model.predict(asked, no_answer_threshold=no["no_answer"] + 1)
    assert (never["answer"], never["has_answer"]) == (no["likeliest"], True)
    (always, _) = model.predict(asked, no_answer_threshold=yes["no_answer"] - 1)
    assert (always["answer"], always["likeliest"]) == ("", "Oslo")
    done = cli("finetune", str(pretrained), "--train", files["train"], "--stride", "0")
    assert done.status == 1
    assert "windows 0 apart do not fit" in " ".join(done.err.split())
    model.export(tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["BertForQuestionAnswering"]


@pytest.mark.slow
def test_an_xlnet_learns_to_search(files: dict[str, str], tmp_path: Path) -> None:
    source = stored_xlnets.write_untrained(tmp_path / "mine", TEXT, vocab_size=120)

    def run(name: str, source: Path, **given: Any) -> t5x.Pretraining:
        place = {"model_dir": str(tmp_path / name), "cache_dir": str(tmp_path / "cache")}
        rows = {"length": 24, "stride": 8, "batch_size": 32}
        return t5x.finetune(str(source), **files, **place, **rows, **given)

    run("run", source, search=True, epochs=4, learning_rate=1e-2).train()
    for name in ("f1", "HasAns_f1", "NoAns_f1", "best_f1"):
        assert last(tmp_path / "run", f"train/{name}") > 0.95, name
    model = t5x.load(str(tmp_path / "run"))
    evaluated = model.evaluate(corpus=files["dev"])["dev"]["trained"]
    assert evaluated["f1"] == last(tmp_path / "run", "train/f1")
    context = "Nothing happens. " * 12 + "Dora lives in Oslo. " + "Nothing happens. " * 3
    asked = [
        {"inputs": "Where is it?", "context": context},
        {"inputs": "Where is it?", "context": "Nothing happens. " * 12},
    ]
    yes, no = model.predict(asked)
    assert (yes["answer"], yes["has_answer"], no["answer"], no["has_answer"]) == (
        *("Oslo", True),
        *("", False),
    )
    assert yes["no_answer"] < 0 < no["no_answer"]
    model.export(tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["XLNetForQuestionAnswering"]
    again = run("again", tmp_path / "theirs")
    assert again.run.abstract_model.answer_form == "searched spans"
    reviews = tmp_path / "reviews.csv"
    reviews.write_text("text,label\n" + "fine,1\ndull,0\n" * 9)
    with pytest.raises(ValueError, match=r"search is for answers in texts \(--kind spans\)"):
        t5x.finetune(str(source), train=str(reviews), search=True, model_dir=str(tmp_path / "no"))

"""Several tasks at once: one body and a head each, from files to answers and exports."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from small_reviews import BAD, GOOD, NAMES, evaluations
from tiny_run import losses

import t5x_like as t5x
from t5x_like.api.exporting.adapter_export import export_adapter
from t5x_like.api.exporting.export import export
from t5x_like.runs.trained.merging.merged_runs import merge


@pytest.fixture(scope="module")
def tasks(reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Classes of texts, numbers of pairs, and tags of words."""
    folder, draw = tmp_path_factory.mktemp("tasks"), random.Random(1)
    pairs, names = [], []
    for _ in range(64):
        first, second = draw.choices([*GOOD, *BAD], k=2)
        texts = {"sentence1": f"a {first} book", "sentence2": f"{second} song"}
        pairs.append({**texts, "label": (first in GOOD) + (second in GOOD) / 2})
        words = [draw.choice(NAMES), "sings", "a", "number"]
        names.append({"words": words, "tags": ["B-PER", "O", "O", "O"]})
    for name, rows in {"pairs": pairs, "names": names}.items():
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines[16:]))
        (folder / f"{name}_dev.jsonl").write_text("".join(lines[:16]))
    files = {
        name: {"train": str(folder / f"{name}.jsonl"), "dev": str(folder / f"{name}_dev.jsonl")}
        for name in ("pairs", "names")
    }
    return {"reviews": {"train": str(reviews), "label": "verdict"}, **files}


@pytest.mark.slow
def test_tasks_are_learned_resumed_asked_and_exported_apart(
    pretrained: Path, tasks: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    def run(name: str) -> t5x.Pretraining:
        return t5x.finetune(
            str(pretrained),
            task=tasks,
            model_dir=str(tmp_path / name),
            cache_dir=str(tmp_path / "cache"),
            epochs=6,
            learning_rate=1e-2,
            batch_size=16,
            gin=["LOG_PERIOD=1"],
        )

    straight = run("straight")
    assert "reviews: 2 labels: good 85, bad 75." in " ".join(straight.notes)
    assert straight.train().status == "finished"
    for step in run("broken").steps():
        if step.step == 23:
            break
    assert run("broken").train().status == "finished"
    assert losses(tmp_path / "broken") == losses(tmp_path / "straight")
    model = t5x.load(str(tmp_path / "broken"), step="best")
    scores = model.evaluate()
    for task, metric in (("reviews", "accuracy"), ("pairs", "pearson"), ("names", "entity_f1")):
        logged = evaluations(tmp_path / "broken", f"{task}/{metric}")
        assert logged == evaluations(tmp_path / "straight", f"{task}/{metric}")
        assert max(logged) > 0.8, (task, logged)
        assert scores[task]["trained"][metric] in [pytest.approx(x) for x in logged]

    said = model.head("reviews").predict(["a lovely, play 3", "a dull, film 4"])
    assert [answer["label"] for answer in said] == ["good", "bad"]
    pair = {"inputs": "a great book", "inputs2": "awful song"}
    (record,) = model.head("pairs").predict([pair])
    assert 0.6 < record["value"] < 1.4
    assert model.head("names").predict("Ada sings")["tags"] == ["B-PER", "O"]
    for ask in (None, "answer"):
        with pytest.raises(ValueError, match="a head for each of names, pairs, reviews: name one"):
            model.predict("a film", ask=ask)
    with pytest.raises(ValueError, match="no head 'review': the heads are names, pairs, reviews"):
        model.head("review")
    assert len(model.predict("a film", ask="embed")["embedding"]) > 1
    dev = tasks["pairs"]["dev"]
    again = model.head("pairs").evaluate(corpus=dev)["pairs_dev"]["trained"]
    with pytest.raises(ValueError, match="a head for each of names, pairs, reviews: name one"):
        model.evaluate(corpus=dev)
    assert again["pearson"] == pytest.approx(scores["pairs"]["trained"]["pearson"])

    source = str(tmp_path / "broken")
    with pytest.raises(ValueError, match="a head for each of names, pairs, reviews: name one"):
        export(source, tmp_path / "none")
    export(source, tmp_path / "theirs", step="best", task_head="reviews")
    model.head("pairs").export(tmp_path / "pairs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["label2id"] == {"bad": 0, "good": 1}
    (theirs,) = t5x.load(str(tmp_path / "theirs")).predict(["a lovely, play 3"])
    assert theirs == {**said[0], "probabilities": pytest.approx(said[0]["probabilities"])}
    (theirs,) = t5x.load(str(tmp_path / "pairs")).predict([pair])
    assert theirs["value"] == pytest.approx(record["value"], abs=1e-5)
    # A task alone begins with the body of all.
    one = {**tasks["reviews"], "model_dir": str(tmp_path / "one"), "cache_dir": str(tmp_path)}
    step = next(t5x.finetune(source, **one).steps())
    assert step.step == 1


@pytest.mark.slow
def test_heads_beside_small_new_matrices_are_exported_as_whole_models(
    pretrained: Path, tasks: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    lora = str(tmp_path / "lora")
    some = {name: tasks[name] for name in ("names", "reviews")}
    run = t5x.finetune(
        str(pretrained), task=some, method="lora", model_dir=lora, cache_dir=str(tmp_path / "cache")
    )
    assert any("by lora" in note for note in run.notes)
    for step in run.steps():
        if step.step == 3:
            break
    model = t5x.load(lora).head("reviews")
    said = model.predict("a lovely, play 3")
    export(lora, tmp_path / "theirs", task_head="reviews")
    model.export(tmp_path / "same")
    for name in ("theirs", "same"):
        theirs = t5x.load(str(tmp_path / name)).predict("a lovely, play 3")
        assert theirs["probabilities"] == pytest.approx(said["probabilities"], rel=1e-4)
    with pytest.raises(ValueError, match="PEFT keeps one beside an adapter"):
        export_adapter(lora, tmp_path / "adapter")
    with pytest.raises(ValueError, match="heads of several tasks, which are not merged"):
        merge([lora], str(tmp_path / "merged"))


def test_what_is_not_for_several_tasks_is_refused_before_any_work(
    pretrained: Path, tasks: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    def refused(match: str, **given: Any) -> None:
        with pytest.raises(ValueError, match=match):
            t5x.finetune(str(pretrained), cache_dir=str(tmp_path), **{"task": tasks, **given})

    refused("train are of one task: say them of each", train="a.csv")
    refused("a teacher is for one task", teacher="runs/a")
    refused("r_drop is for one task", r_drop=1.0)
    refused("the method features is for one task", method="features")
    refused("CORPUS_LABELS are the classes of one task", gin=["CORPUS_LABELS=['bad', 'good']"])
    refused("several tasks have one name: sst2", task=["sst2", "sst2"])
    refused("task mrcp: no task 'mrcp'; nearest: mrpc", task=["sst2", "mrcp"])
    refused("task reviews: nothing reads 'lable'; nearest: label", task={"reviews": {"lable": 1}})
    refused("task reviews: say what there is to learn", task={"reviews": {"label": "verdict"}})
    named = {"a": {"task": "sst2", "labels": ["good", "bad"]}}
    refused("'sst2' says what its classes are: leave out labels", task=named)
    refused("has letters, digits", task={"my reviews": tasks["reviews"]})
    choices = tmp_path / "choices.jsonl"
    choices.write_text('{"inputs": "a", "choices": ["b", "c"], "label": 0}\n' * 9)
    refused("task c has choices: several tasks at once", task={"c": {"train": str(choices)}})


def test_tasks_are_named_in_a_file(
    pretrained: Path, tasks: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    file = tmp_path / "tasks.toml"
    tables = [
        f"[{name}]\n" + "".join(f"{word} = {json.dumps(value)}\n" for word, value in said.items())
        for name, said in tasks.items()
    ]
    file.write_text("\n".join(tables))
    made = [
        t5x.finetune(str(pretrained), task=given, cache_dir=str(tmp_path))
        for given in (str(file), tasks)
    ]
    assert made[0].config == made[1].config
    assert made[0].run.model_dir == f"{pretrained}-reviews-pairs-names"
    for text, error in (
        ("train = 'a.csv'", "'train' is not in the table of a task"),
        ("[reviews", "is not TOML"),
        ("", "has no task"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=error):
            t5x.finetune(str(pretrained), task=str(file))

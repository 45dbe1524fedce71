"""From a pretrained model and a file of labels to answers: `t5x.finetune` and the command."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_reviews import BAD, GOOD, NAMES, THINGS, evaluations
from tiny_run import Result, Tiny, finish, losses

import t5x_like as t5x


@pytest.mark.slow
def test_classes_are_learned_resumed_asked_and_exported(
    pretrained: Path, reviews: Path, tmp_path: Path
) -> None:
    def run(name: str) -> t5x.Pretraining:
        return t5x.finetune(
            str(pretrained),
            train=str(reviews),
            model_dir=str(tmp_path / name),
            cache_dir=str(tmp_path / "cache"),
            epochs=6,
            learning_rate=5e-3,
            batch_size=16,
            average_last=5,
            gin=["LOG_PERIOD=1"],
        )

    straight = run("straight")
    assert "2 labels: good 85, bad 75." in " ".join(straight.notes)
    assert straight.train().status == "finished"
    for step in run("broken").steps():
        if step.step == 13:
            break
    assert run("broken").train().status == "finished"
    assert losses(tmp_path / "broken") == losses(tmp_path / "straight")
    both = (evaluations(tmp_path / name, "reviews/loss") for name in ("broken", "straight"))
    assert next(both) == next(both)  # of the average
    scores = {
        name: evaluations(tmp_path / "broken", f"reviews/{name}") for name in ("accuracy", "f1")
    }
    assert len(scores["accuracy"]) == 6
    assert scores["accuracy"][-1] > 0.9
    assert scores["f1"][-1] > 0.9
    model = t5x.load(str(tmp_path / "broken"))
    answers = model.predict(["a lovely, play 3", "a dull, film 4"])
    assert [answer["label"] for answer in answers] == ["good", "bad"]
    assert model.evaluate(corpus=str(reviews))["reviews"]["trained"]["matthews_correlation"] > 0.8
    model.export(tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["label2id"] == {"bad": 0, "good": 1}
    # Another head on the body of this one.
    theirs, other = str(tmp_path / "theirs"), str(tmp_path / "again")
    again = t5x.finetune(theirs, train=str(reviews), model_dir=other, cache_dir=str(tmp_path))
    assert again.run.init_from is not None
    assert again.run.init_from.skip == ("^head\\.out",)
    assert next(again.steps()).step == 1


@pytest.mark.slow
def test_numbers_of_pairs_by_the_command(
    pretrained: Path, tmp_path: Path, cli: Callable[..., Result]
) -> None:
    draw = random.Random(1)
    rows = []
    for _ in range(120):
        first, second = draw.choices([*GOOD, *BAD], k=2)
        score = (first in GOOD) + (second in GOOD) / 2
        texts = {"sentence1": f"a {first} book", "sentence2": f"{second} song"}
        rows.append({**texts, "label": score})
    file, dev = tmp_path / "pairs.jsonl", tmp_path / "dev.jsonl"
    for path, part in ((file, rows[20:]), (dev, rows[:20])):
        path.write_text("".join(json.dumps(row) + "\n" for row in part))
    shared = ["--cache_dir", str(tmp_path / "cache"), "--model_dir", str(tmp_path / "run")]
    done = cli(
        *("finetune", str(pretrained), "--train", str(file), "--dev", str(dev), *shared),
        *("--epochs=12", "--learning_rate=0.01", "--batch_size=24"),
    )
    assert done.status == 0, done.err
    learns = "Learns a number from the column 'label' for 'sentence1' and 'sentence2' (100 rows)."
    assert learns in done.err
    assert evaluations(tmp_path / "run", "pairs/pearson")[-1] > 0.8
    pair = {"inputs": "a great book", "inputs2": "awful song"}
    model = t5x.load(str(tmp_path / "run"))
    scores = model.evaluate(corpus=str(dev))["dev"]["trained"]
    assert scores["pearson"] == pytest.approx(evaluations(tmp_path / "run", "pairs/pearson")[-1])
    # The same rows as a task by name.
    lines = ["\t".join(map(str, row.values())) for row in ({k: k for k in rows[0]}, *rows[:20])]
    (tmp_path / "dev.tsv").write_text("\n".join(lines) + "\n")
    named = cli("eval", str(tmp_path / "run"), "--task=stsb", "--data_dir", str(tmp_path))
    assert named.status == 0, named.err
    values = dict(line.split() for line in named.out.splitlines() if len(line.split()) == 2)
    assert float(values["pearson"]) == pytest.approx(scores["pearson"], abs=1e-4)
    (record,) = model.predict([pair])
    assert 0.7 < record["value"] < 1.3


@pytest.mark.slow
def test_entities_beyond_the_row_are_missed_and_not_forgotten(
    pretrained: Path, tmp_path: Path
) -> None:
    draw = random.Random(2)
    sentences = []
    for _ in range(120):
        names = draw.sample(NAMES, 2)
        words = [(names[0], "B-PER"), ("sings", "O"), ("and", "O"), (names[1], "B-PER")]
        sentences.append("".join(f"{word} {tag}\n" for word, tag in words))
    file = tmp_path / "names.conll"
    file.write_text("\n".join(sentences))
    recall = {}
    for length in (None, 5):
        run = t5x.finetune(
            str(pretrained),
            train=str(file),
            model_dir=str(tmp_path / f"run{length}"),
            cache_dir=str(tmp_path / "cache"),
            epochs=8,
            learning_rate=1e-2,
            batch_size=24,
            length=length,
        )
        run.train()
        recall[length] = evaluations(tmp_path / f"run{length}", "names/entity_recall")[-1]
    assert recall == {None: 1.0, 5: 0.5}


@pytest.mark.slow
def test_choices_of_a_list_and_one_that_is_missing(pretrained: Path, tmp_path: Path) -> None:
    draw = random.Random(3)
    rows = []
    for number in range(160):
        right = draw.randrange(3 if number % 4 else 2)
        choices = [f"a {word} book" for word in draw.sample(BAD, 3 if number % 4 else 2)]
        choices[right] = f"a {draw.choice(GOOD)} book"
        rows.append({"premise": f"Ada sings {number}", "choices": choices, "answer": "ABC"[right]})
    file = tmp_path / "which.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = t5x.finetune(
        str(pretrained),
        train=str(file),
        model_dir=str(tmp_path / "run"),
        cache_dir=str(tmp_path / "cache"),
        epochs=8,
        learning_rate=1e-2,
        batch_size=24,
    )
    assert "which of 3 choices the column 'answer' names" in " ".join(run.notes)
    run.train()
    assert evaluations(tmp_path / "run", "which/accuracy")[-1] > 0.9
    model = t5x.load(str(tmp_path / "run"))
    asked = [{"inputs": "Ada sings", "choices": ["a dull book", "a great book"]}]
    assert model.predict(asked)[0]["choice"] == "a great book"
    model.export(tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["BertForMultipleChoice"]


@pytest.mark.slow
def test_several_classes_at_once(pretrained: Path, tmp_path: Path) -> None:
    draw = random.Random(4)
    lines = ["text\ttopics"]
    for number in range(200):
        words = draw.sample([*THINGS, *NAMES], draw.randrange(1, 4))
        topics = [
            topic for topic, of in (("things", THINGS), ("people", NAMES)) if {*of} & {*words}
        ]
        topics *= number % 10 > 0  # some rows have none
        words += ["dull"] * (number % 10 == 0)
        lines.append(f"{' '.join(words)}\t{json.dumps(topics)}")
    file = tmp_path / "topics.tsv"
    file.write_text("\n".join(lines) + "\n")
    run = t5x.finetune(
        str(pretrained),
        train=str(file),
        label="topics",
        model_dir=str(tmp_path / "run"),
        cache_dir=str(tmp_path / "cache"),
        epochs=12,
        learning_rate=2e-2,
        batch_size=24,
    )
    assert "several classes at once from the column 'topics'" in " ".join(run.notes)
    run.train()
    assert evaluations(tmp_path / "run", "topics/micro_f1")[-1] > 0.9
    model = t5x.load(str(tmp_path / "run"))
    rows = [line.split("\t") for line in lines[1:]]
    answers = model.predict([text for text, _ in rows], class_threshold=0.5)
    right = [
        {*answer["labels"]} == {*json.loads(names)}
        for answer, (_, names) in zip(answers, rows, strict=True)
    ]
    scores = model.evaluate(corpus=str(file))["topics"]["trained"]
    assert scores["accuracy"] == pytest.approx(sum(right) / len(rows))
    assert scores["macro_f1"] > 0.9
    tuned = evaluations(tmp_path / "run", "topics/best_threshold")[-1]
    assert model.predict("Ada") == model.predict("Ada", class_threshold=tuned)
    assert model.predict("Ada", class_threshold=0.0)["labels"] == ["people", "things"]
    model.export(tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert config["id2label"] == {"0": "people", "1": "things"}


@pytest.mark.slow
def test_one_device_and_two_processes_train_as_one(
    pretrained: Path, reviews: Path, tiny: Tiny
) -> None:
    header, *lines = reviews.read_text().splitlines()
    weighed = [f"{header},w", *(f"{line},{number % 4}" for number, line in enumerate(lines))]
    file = tiny.root / "weighed.csv"
    file.write_text("\n".join(weighed) + "\n")

    def command(name: str) -> list[str]:
        model_dir = f"--gin.MODEL_DIR={str(tiny.root / name)!r}"
        place = [model_dir, "--cache_dir", str(tiny.root / "cache")]
        of_rows = ["--train", str(file), "--weight=w", "--batch_size=16", "--epochs=0.4"]
        return ["finetune", str(pretrained), *of_rows, *place, "--gin.LOG_PERIOD=1"]

    done = tiny.cli(*command("eight"))
    assert done.status == 0, done.err
    want = losses(tiny.root / "eight")
    assert sorted(want) == [1, 2, 3, 4]
    first, second = finish(*tiny.start_many(command("two")))
    assert "Learns a class" in first.err
    assert not second.err.strip()
    finish(tiny.start(command("one"), devices=1))
    for name in ("two", "one"):
        assert losses(tiny.root / name) == pytest.approx(want, rel=1e-4)
        scores = evaluations(tiny.root / name, "weighed/matthews_correlation")
        assert scores == evaluations(tiny.root / "eight", "weighed/matthews_correlation")


def test_settings_of_gin_decide_the_steps(pretrained: Path, reviews: Path, tmp_path: Path) -> None:
    def steps(**given: Any) -> int:
        place = {"model_dir": str(tmp_path / "run"), "cache_dir": str(tmp_path / "cache")}
        return t5x.finetune(
            str(pretrained), train=str(reviews), **place, **given
        ).run.options.train_steps

    assert steps() == 3 * 5  # 144 of 160 rows in batches of 32
    assert steps(gin=["EPOCHS=2", "BATCH_SIZE = 8"]) == steps(epochs=2, batch_size=8) == 2 * 18
    assert steps(gin=["CORPUS_VALIDATION=0.5", "EPOCHS=1"]) == 3


def test_labels_count_as_they_shall(pretrained: Path, reviews: Path, tmp_path: Path) -> None:
    def loss(**given: Any) -> Any:
        place = {"model_dir": str(tmp_path / "run"), "cache_dir": str(tmp_path / "cache")}
        run = t5x.finetune(str(pretrained), train=str(reviews), **place, **given).run
        return run.abstract_model.label_loss

    balanced = loss(class_weights="balanced", label_smoothing=0.1)
    assert balanced.class_weights == pytest.approx((80 / 75, 80 / 85))  # bad, good
    assert balanced.label_smoothing == 0.1
    assert loss(class_weights={"good": 3}, focal_gamma=2).class_weights == (1.0, 3.0)
    with pytest.raises(ValueError, match=r"no class 'goof'.*good"):
        loss(class_weights={"goof": 2})
    with pytest.raises(ValueError, match="label_smoothing is from 0 to below 1"):
        loss(label_smoothing=1)


def test_parts_of_speech_are_no_entities(pretrained: Path, tmp_path: Path) -> None:
    for tags, metric in ((("NOUN", "VERB"), "accuracy"), (("I-PER", "O"), "entity_f1")):
        file = tmp_path / f"{metric}.conll"
        file.write_text("".join(f"Ada {tags[0]}\nsings{n} {tags[1]}\n\n" for n in range(40)))
        place = {"model_dir": str(tmp_path / metric), "cache_dir": str(tmp_path / "cache")}
        run = t5x.finetune(str(pretrained), train=str(file), **place)
        assert run.run.options.best_metric == metric
        assert ("read as BIO" in " ".join(run.notes)) == (metric == "entity_f1")


def test_a_model_without_a_head_of_this_kind_is_refused(
    pretrained: Path, tmp_path: Path, cli: Callable[..., Result]
) -> None:
    (tmp_path / "a.csv").write_text("text,label\nfine,1\n")
    done = cli("finetune", str(pretrained), "--train", str(tmp_path / "a.csv"))
    assert done.status == 1
    assert "is '1' in all rows: there is nothing to learn" in " ".join(done.err.split())
    done = cli("finetune", str(tmp_path / "none"), "--train", str(tmp_path / "a.csv"))
    assert done.status == 1

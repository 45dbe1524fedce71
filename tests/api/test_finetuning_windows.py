"""Long texts are learned in windows, and evaluation says what `predict` says of the whole text."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import stored_berts
from named_people import TEXT, WORDS, tagged, write_lines
from small_reviews import NAMES

import t5x_like as t5x
from t5x_like.training.logs.metrics_file import read_metrics


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "mine"
    return stored_berts.write_untrained(directory, TEXT, vocab_size=60)


def rows(count: int) -> list[dict[str, Any]]:
    """Texts of 1 to 40 words."""
    draw = random.Random(0)
    return [tagged(draw.choices([*NAMES, *WORDS], k=draw.randrange(1, 40))) for _ in range(count)]


def run(pretrained: Path, tmp_path: Path, lines: list[dict[str, Any]], **given: Any) -> Any:
    return t5x.finetune(
        str(pretrained),
        train=write_lines(tmp_path / "train.jsonl", lines[10:]),
        dev=write_lines(tmp_path / "dev.jsonl", lines[:10]),
        model_dir=str(tmp_path / "run"),
        cache_dir=str(tmp_path / "cache"),
        epochs=1,
        batch_size=16,
        length=16,
        learning_rate=1e-2,
        **given,
    )


@pytest.mark.slow
@pytest.mark.parametrize("pieces", ["last", "mean"])
def test_tags(pretrained: Path, tmp_path: Path, pieces: str) -> None:
    lines = rows(60)
    made = run(pretrained, tmp_path, lines, stride=6, pieces=pieces)
    notes = " ".join(made.notes)
    assert "50 texts are read in" in notes
    assert "of them have several." in notes
    made.train()
    asked = [{"inputs": line["words"]} for line in lines[:10]]
    answers = t5x.load(str(tmp_path / "run")).predict(asked)
    right = [
        tag == want
        for answer, line in zip(answers, lines, strict=False)
        for tag, want in zip(answer["tags"], line["tags"], strict=True)
    ]
    (last,) = (line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if _NAME in line)
    assert last[_NAME] == pytest.approx(sum(right) / len(right))
    assert "eval/train/row_accuracy" in last
    config = (tmp_path / "run" / "config.gin").read_text()
    assert f"pieces = '{pieces}'" in config


@pytest.mark.slow
def test_classes(pretrained: Path, tmp_path: Path) -> None:
    lines = [
        {"text": " ".join(row["words"]), "label": "many" if len(row["words"]) > 20 else "few"}
        for row in rows(60)
    ]
    made = run(pretrained, tmp_path, lines, stride=6)
    assert made.run.options.train_steps > -(-50 // 16)  # an epoch has the windows of all texts
    made.train()
    model = t5x.load(str(tmp_path / "run"))
    answers = model.predict([line["text"] for line in lines[:10]])
    right = [a["label"] == line["label"] for a, line in zip(answers, lines, strict=False)]
    scores = model.evaluate(corpus=str(tmp_path / "dev.jsonl"))["dev"]["trained"]
    assert scores["accuracy"] == pytest.approx(sum(right) / len(right))
    (last,) = (line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if _NAME in line)
    assert last[_NAME] == scores["accuracy"]


_NAME = "eval/train/accuracy"


def test_what_is_not_read_in_windows_or_pieces_is_refused(pretrained: Path, tmp_path: Path) -> None:
    pairs = [{"sentence1": "Ada", "sentence2": f"sings {n}", "label": n % 2} for n in range(40)]
    with pytest.raises(ValueError, match="a stride is that of windows of one text"):
        run(pretrained, tmp_path, pairs, stride=6)
    with pytest.raises(ValueError, match=r"pieces are those of words with tags.*not of classes"):
        run(pretrained, tmp_path, pairs, pieces="all")
    with pytest.raises(ValueError, match="pieces must be one of first, last, all, mean, not 'mid'"):
        run(pretrained, tmp_path, rows(40), pieces="mid")
    choices = [
        {"premise": "Ada", "choices": ["a", f"b{n}"], "label": "AB"[n % 2]} for n in range(40)
    ]
    with pytest.raises(ValueError, match="choices are not read in windows"):
        run(pretrained, tmp_path, choices, stride=6)

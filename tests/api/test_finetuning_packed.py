"""Rows of training that hold several labelled texts: their number, their loss, who refuses them."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import stored_berts
from named_people import TEXT, WORDS, tagged, write_lines
from small_reviews import NAMES, evaluations

import t5x_like as t5x

HELD_OUT = 20


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "mine"
    return stored_berts.write_untrained(directory, TEXT, vocab_size=60)


def texts(count: int, label: str) -> list[dict[str, Any]]:
    """Texts of 1 to 8 words, of which one says the label; words with tags, choices or answers."""
    draw = random.Random(0)
    made: list[dict[str, Any]] = []
    for _ in range(count):
        words = draw.choices([*NAMES, *WORDS], k=draw.randrange(1, 9))
        name = draw.choice(NAMES)
        if label == "tags":
            made.append(tagged(words))
        elif label == "choices":
            choices = draw.sample(["sings", "walks", "there"], k=3)
            if len(made) < HELD_OUT:
                choices = ["sings", "walks", "there"]
            right = "ABC"[choices.index("sings")]
            made.append({"premise": name, "choices": choices, "label": right})
        elif label == "spans":
            context = " ".join([*words, "sings", name])
            answers = [{"text": name, "answer_start": context.rindex(name)}]
            made.append({"question": "who sings", "context": context, "answers": answers})
        else:
            made.append({"text": " ".join([name, *words]), "label": f"of {name}"})
    return made


def run(pretrained: Path, folder: Path, lines: list[dict[str, Any]], **given: Any) -> Any:
    settings = {"epochs": 6, "batch_size": 8, "length": 32, "learning_rate": 1e-2, **given}
    return t5x.finetune(
        str(pretrained),
        train=write_lines(folder / "train.jsonl", lines[HELD_OUT:]),
        dev=write_lines(folder / "dev.jsonl", lines[:HELD_OUT]),
        model_dir=str(folder / "run"),
        cache_dir=str(folder / "cache"),
        pack=True,
        **settings,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "given"),
    [
        ("classes", {"r_drop": 0.1}),
        ("tags", {"pieces": "mean", "stride": 6, "length": 16}),
        ("choices", {"length": 16}),
        ("spans", {"stride": 6}),
    ],
)
def test_it_learns_from_rows_of_several_texts(
    label: str,
    given: dict[str, Any],
    pretrained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    metric = "f1" if label == "spans" else "accuracy"
    made = run(pretrained, tmp_path, texts(120, label), **given)
    (note,) = (note for note in made.notes if "are packed into" in note)
    made.train()
    said = capsys.readouterr().err
    rows, share = re.search(r"into (\d+) of \d+ tokens, of which ([\d.]+)% are used", note).groups()
    assert f"tokens, {rows} rows, " in said  # those of the plan
    assert "held-out rows of train (all " in said
    assert ("one target, 'A': a model that" in said) == (label == "choices")  # as held out
    assert int(rows) < 60
    assert float(share) > 75
    logged = evaluations(tmp_path / "run", f"train/{metric}")[-1]
    assert logged > 0.9
    if label == "choices":  # files are read in rows of one text, too
        model = t5x.load(str(tmp_path / "run"))
        scores = model.evaluate(corpus=str(tmp_path / "dev.jsonl"))["dev"]["trained"]
        assert scores["accuracy"] == pytest.approx(logged)
        assert "task 'dev': all 20 held-out examples" in capsys.readouterr().err


CHOICES = [{"premise": "Ada", "choices": ["a", f"b{n}"], "label": "AB"[n % 2]} for n in range(40)]
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (CHOICES, {"length": 40}, "80 tokens for choices of 40, .* reads rows of 64: .* at most 32"),
    ("classes", {"method": "prompt"}, "a prompt is before the first text of a row"),
    ("classes", {"teacher": "runs/teacher"}, "a teacher reads one text in a row"),
]


@pytest.mark.parametrize(("lines", "given", "error"), REFUSED)
def test_what_cannot_be_packed_is_refused(
    lines: Any, given: dict[str, Any], error: str, pretrained: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=error):
        run(pretrained, tmp_path, texts(40, lines) if lines == "classes" else lines, **given)


def test_packed_rows_are_not_grouped_by_length(pretrained: Path, tmp_path: Path) -> None:
    made = run(pretrained, tmp_path, texts(40, "classes"), gin=["GROUP_BY_LENGTH=True"])
    with pytest.raises(ValueError, match="packed rows have one length"):
        made.train()
    assert not (tmp_path / "run" / "config.gin").exists()


def test_several_tasks_are_refused(pretrained: Path, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "train.jsonl", texts(40, "classes"))
    with pytest.raises(ValueError, match="pack is for one task"):
        t5x.finetune(str(pretrained), task={"a": {"train": file}, "b": {"train": file}}, pack=True)

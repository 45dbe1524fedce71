"""A student learns what its teacher says of the texts, and leaves without what it learned with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kinds_of_labels import untrained

import t5x_like as t5x

TEXTS = [f"{'ada' if n % 2 else 'bert'} sings {n % 30}" for n in range(64)]


@pytest.mark.slow
def test_a_student_learns_its_teacher_s_answers(tmp_path: Path) -> None:
    written = untrained(tmp_path / "models")
    files = {"true": "yn", "wrong": "ny", "other": "ab"}
    for name, labels in files.items():
        rows = "".join(f"{text},{labels[n % 2]}\n" for n, text in enumerate(TEXTS))
        (tmp_path / f"{name}.csv").write_text(f"text,label\n{rows}")

    def tuned(of: str, name: str, rows: str, **given: Any) -> t5x.Pretraining:
        return t5x.finetune(
            written(of),
            train=str(tmp_path / f"{rows}.csv"),
            epochs=6,
            batch_size=16,
            learning_rate=0.02,
            model_dir=str(tmp_path / name),
            cache_dir=str(tmp_path / "cache"),
            **given,
        )

    tuned("bert", "teacher", "true").train()
    teacher = str(tmp_path / "teacher")
    # The labels of the files say the opposite, and count for nothing.
    learning = t5x.Distilling(teacher, weight=1.0, temperature=2.0, states=0.1)
    tuned("electra", "student", "wrong", teacher=learning).train()
    asked = ["ada sings 3", "bert sings 8"]
    answers = [t5x.load(str(tmp_path / name)).predict(asked) for name in ("teacher", "student")]
    labels = [[one["label"] for one in answer] for answer in answers]
    assert labels == [["n", "y"]] * 2
    t5x.load(str(tmp_path / "student")).export(tmp_path / "theirs")
    left = t5x.load(str(tmp_path / "theirs")).predict(asked)
    assert [one["label"] for one in left] == ["n", "y"]
    for error, given in (
        (r"has learned n, y, in this order, and the files have a, b", {"rows": "other"}),
        ("r_drop and a teacher", {"rows": "true", "r_drop": 1.0}),
        ("distill_weight is for a teacher", {"rows": "true", "teacher": t5x.Distilling(weight=1)}),
        ("without a head for labels", {"rows": "true", "teacher": written("bert")}),
    ):
        with pytest.raises(ValueError, match=error):
            tuned("electra", "no", **{"teacher": teacher, **given})

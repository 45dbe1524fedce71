"""Questions with choices: how they are read, and which choice is likeliest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from t5x_like.evaluation.language import multiple_choice
from t5x_like.evaluation.language.multiple_choice import Question


def test_questions_are_read_as_for_fine_tuning(tmp_path: Path) -> None:
    rows = [
        {"premise": "It rained.", "choice1": "I got wet.", "choice2": "I ate.", "label": 0},
        {"premise": "I was hungry.", "choice1": "I slept.", "choice2": "I ate. ", "label": 1},
    ]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert multiple_choice.read(str(file)) == [
        Question("It rained.", ["I got wet.", "I ate."], 0),
        Question("I was hungry.", ["I slept.", "I ate."], 1),
    ]
    lists = {"question": "Where?", "choices": ["here", "there", "up"], "answer": "C"}
    file.write_text(json.dumps(lists) + "\n" + json.dumps({**lists, "answer": "A"}) + "\n")
    assert [question.right for question in multiple_choice.read(str(file))] == [2, 0]


def test_equal_choices_share_a_question() -> None:
    scores = [[-1.0, -2.0], [-3.0, -3.0, -5.0], [-2.0, -1.0]]
    assert multiple_choice._accuracy(scores, [0, 1, 0]) == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert multiple_choice._divided(scores[:1], [[1, 4]]) == [[-1.0, -0.5]]

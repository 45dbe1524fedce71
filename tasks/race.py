"""RACE by name of the task (Lai et al., 2017): exam questions about articles, with four choices.

`--data_dir` is the folder RACE of its authors, or the one above it: a file for each article.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from t5x_like.data.labelled.distributed_files import Files, Objects
from t5x_like.data.labelled.named_tasks import NamedTask, Online


def _questions(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each question of an article, or for the one that a row has.

    A choice is the question with the option in its blank, or after it.
    """
    nested = "questions" in row
    questions, answers = (
        row[f"{name}s"] if nested else [row[name]] for name in ("question", "answer")
    )
    several = row["options"] if nested else [row["options"]]
    for question, options, answer in zip(questions, several, answers, strict=True):
        choices = [
            question.replace("_", option) if "_" in question else f"{question} {option}"
            for option in options
        ]
        yield {"article": row["article"], "choices": choices, "answer": answer}


def _race(name: str, school: str, summary: str, config: str) -> NamedTask:
    train, dev = (
        tuple(f"{place}{part}/{school}/*.txt" for place in ("RACE/", ""))
        for part in ("train", "dev")
    )
    return NamedTask(
        name=name,
        summary=f"which of four answers a question about an article? {summary}",
        kind="choices",
        columns={column: (column,) for column in ("article", "choices", "answer")},
        files=[Files(train, dev, Objects())],
        hugging_face=Online("ehovy/race", config=config),
        expand=_questions,
    )


LABELLED = (
    _race("race", "*", "Of middle and high schools", "all"),
    _race("race_middle", "middle", "Of middle schools", "middle"),
    _race("race_high", "high", "Of high schools", "high"),
)
"""The tasks."""

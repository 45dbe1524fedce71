"""Answers that are spans of a text, and choices among texts, by name of the task."""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

from t5x_like.data.labelled.distributed_files import AsTheyAre, Files, Table
from t5x_like.data.labelled.named_tasks import NamedTask

_SPANS = {name: (name,) for name in ("question", "context", "answers")}
_CHOICES = {name: (name,) for name in ("text", "choices", "label")}


def _as_it_is(
    name: str, summary: str, kind: str, train: str, dev: str, *, folder: str = ""
) -> NamedTask:
    columns: Any = _SPANS if kind == "spans" else _CHOICES
    files = [Files((f"{folder}{train}", train), (f"{folder}{dev}", dev), AsTheyAre())]
    return NamedTask(name=name, summary=summary, kind=kind, columns=columns, files=files)


_PUNCTUATION = re.compile(f"([{re.escape(string.punctuation)}])")


def _answers(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each right answer, with spaces around punctuation, as a T5 reads SQuAD."""
    question, context = (
        " ".join(_PUNCTUATION.sub(r" \1 ", row[name]).split()) for name in ("question", "context")
    )
    for answer in dict.fromkeys(answer["text"] for answer in row["answers"]):
        yield {"question": question, "context": context, "answer": answer}


def _with_written(task: NamedTask) -> NamedTask:
    """SQuAD with the form in which a T5 learns it (Raffel et al., 2020, appendix D)."""
    written = dataclasses.replace(
        task,
        kind="texts",
        columns={name: (name,) for name in ("question", "context", "answer")},
        files=[dataclasses.replace(files, form=Table()) for files in task.files],
        expand=_answers,
        prompt="question: {question} context: {context}",
        target="{answer}",
        metrics=("written_spans",),
        best_metric="f1",
        several_targets=True,
    )
    return dataclasses.replace(task, written=written)


LABELLED = (
    _with_written(
        _as_it_is(
            *("squad", "SQuAD 1.1: the answer to a question, in a paragraph", "spans"),
            *("train-v1.1.json*", "dev-v1.1.json*"),
        )
    ),
    _as_it_is(
        *("squad2", "SQuAD 2.0: the same, with questions without an answer", "spans"),
        *("train-v2.0.json*", "dev-v2.0.json*"),
    ),
    _as_it_is("swag", "SWAG: which of four ends?", "choices", "train.csv*", "val.csv*"),
    _as_it_is(
        *("copa", "which of two is the cause, or the effect? SuperGLUE's files", "choices"),
        *("train.jsonl*", "val.jsonl*"),
        folder="COPA/",
    ),
)
"""The tasks."""

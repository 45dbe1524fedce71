"""Answers that are spans of a text, and choices among texts, by name of the task."""

from __future__ import annotations

from typing import Any

from t5x_like.data.labelled.distributed_files import AsTheyAre, Files
from t5x_like.data.labelled.named_tasks import NamedTask

_SPANS = {name: (name,) for name in ("question", "context", "answers")}
_CHOICES = {name: (name,) for name in ("text", "choices", "label")}


def _as_it_is(
    name: str, summary: str, kind: str, train: str, dev: str, *, folder: str = ""
) -> NamedTask:
    columns: Any = _SPANS if kind == "spans" else _CHOICES
    files = [Files((f"{folder}{train}", train), (f"{folder}{dev}", dev), AsTheyAre())]
    return NamedTask(name=name, summary=summary, kind=kind, columns=columns, files=files)


LABELLED = (
    _as_it_is(
        *("squad", "SQuAD 1.1: the answer to a question, in a paragraph", "spans"),
        *("train-v1.1.json*", "dev-v1.1.json*"),
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

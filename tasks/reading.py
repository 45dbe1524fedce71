"""Answers that are spans of a text, and choices among texts, by name of the task."""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

from t5x_like.tasks.glue import prompt

from t5x_like.data.labelled.distributed_files import AsTheyAre, Files, Table
from t5x_like.data.labelled.named_tasks import NamedTask, Online, as_it_is

_SPANS = ("question", "context", "answers")


def _as_it_is(
    name: str, summary: str, kind: str, train: str, dev: str, *, folder: str = "", **online: Any
) -> NamedTask:
    """A task whose files are read as they are; `online` is about the rows of data sets."""
    return NamedTask(
        name=name,
        summary=summary,
        kind=kind,
        files=[Files((f"{folder}{train}", train), (f"{folder}{dev}", dev), AsTheyAre())],
        **{"columns": _same(*_SPANS), **online},
    )


def _same(*columns: str) -> dict[str, tuple[str]]:
    return {column: (column,) for column in columns}


_PUNCTUATION = re.compile(f"([{re.escape(string.punctuation)}])")


def _answers(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each right answer, with spaces around punctuation, as a T5 reads SQuAD."""
    question, context = (
        " ".join(_PUNCTUATION.sub(r" \1 ", row[name]).split()) for name in ("question", "context")
    )
    answers = row["answers"]
    # In SQuAD's own files they are a list.
    texts = answers["text"] if isinstance(answers, dict) else [each["text"] for each in answers]
    for answer in dict.fromkeys(texts):
        yield {"question": question, "context": context, "answer": answer}


def _endings(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row of SWAG with a list of choices: what the second sentence begins with, and its ends."""
    choices = [f"{row['sent2']} {row[f'ending{number}']}" for number in range(4)]
    yield {"sent1": row["sent1"], "choices": choices, "label": row["label"]}


def _alternatives(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row of COPA with a list of choices, each after "cause" or "effect"."""
    choices = [f"{row['question']} {row[name]}" for name in ("choice1", "choice2")]
    label = {"choice1": 0, "choice2": 1}.get(row["label"], row["label"])
    yield {"premise": row["premise"], "choices": choices, "label": label}


def _as_texts(task: NamedTask, **form: Any) -> NamedTask:
    """The task with the form in which a T5 learns it (Raffel et al., 2020, appendix D)."""
    tables = [dataclasses.replace(files, form=Table()) for files in task.files]
    written = dataclasses.replace(task, files=tables, **form)
    return dataclasses.replace(task, written=written)


_COPA = ("choice1", "choice2", "premise", "question")

LABELLED = (
    _as_texts(
        _as_it_is(
            *("squad", "SQuAD 1.1: the answer to a question, in a paragraph", "spans"),
            *("train-v1.1.json*", "dev-v1.1.json*"),
            tfds=Online("squad/v1.1"),
            hugging_face=Online("rajpurkar/squad"),
        ),
        kind="texts",
        columns=_same("question", "context", "answer"),
        expand=_answers,
        prompt="question: {question} context: {context}",
        target="{answer}",
        metrics=("written_spans",),
        best_metric="f1",
        several_targets=True,
    ),
    _as_it_is(
        *("squad2", "SQuAD 2.0: the same, with questions without an answer", "spans"),
        *("train-v2.0.json*", "dev-v2.0.json*"),
        tfds=Online("squad/v2.0"),
        hugging_face=Online("rajpurkar/squad_v2"),
    ),
    _as_it_is(
        *("swag", "SWAG: which of four ends?", "choices", "train.csv*", "val.csv*"),
        columns=_same("sent1", "choices", "label"),
        expand=_endings,
        hugging_face=Online("allenai/swag", config="regular"),
    ),
    _as_texts(
        _as_it_is(
            *("copa", "which of two is the cause, or the effect? SuperGLUE's files", "choices"),
            *("train.jsonl*", "val.jsonl*"),
            folder="COPA/",
            columns=_same("premise", "choices", "label"),
            expand=_alternatives,
            tfds=Online("super_glue/copa"),
            hugging_face=Online("aps/super_glue", config="copa"),
        ),
        kind="classes",
        columns=_same(*_COPA, "label"),
        labels={"0": "choice1", "1": "choice2"},
        expand=as_it_is,
        prompt=prompt("copa", *_COPA),
    ),
)
"""The tasks."""

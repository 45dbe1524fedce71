"""SuperGLUE's ReCoRD by name of the task (Zhang et al., 2018): which entity fills the blank?

An encoder finds the entity as a span of the passage, as the model of its authors does. A T5 writes
it; each of several right entities is a row to learn from (Raffel et al., 2020, section 2.4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from t5x_like.tasks.superglue import files

from t5x_like.data.labelled.named_tasks import NamedTask, Online

_HIGHLIGHT = "@highlight"


def _queries(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each query about a passage, or for the one that a row has."""
    passage = row["passage"]
    if isinstance(passage, str):  # as data sets of the network have it, without places
        answers = [*dict.fromkeys(row["answers"])]
        starts = [passage.find(text) for text in answers]  # -1 is refused as not at its place
        yield _query(passage, row["entities"], row["query"], answers, starts)
        return
    text = passage["text"]
    entities = [text[span["start"] : span["end"] + 1] for span in passage["entities"]]
    for query in row["qas"]:
        starts = [answer["start"] for answer in query["answers"]]
        answers = [answer["text"] for answer in query["answers"]]
        yield _query(text, entities, query["query"], answers, starts)


def _query(
    passage: str, entities: list[str], query: str, answers: list[str], starts: list[int]
) -> dict[str, Any]:
    return {
        "question": query,
        "context": passage,
        "answers": {"text": answers, "answer_start": starts},
        "entities": ", ".join(sorted({*entities})),
    }


def _written(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each right entity of a query; highlights are sentences of the passage."""
    for query in _queries(row):
        ended = re.sub(rf"(\.|\?|!|\"|\')\n{_HIGHLIGHT}\n", r"\1 ", query["context"])
        passage = ended.replace(f"\n{_HIGHLIGHT}\n", ". ")
        for answer in dict.fromkeys(query["answers"]["text"]):
            yield {**query, "context": passage, "answer": answer}


def _record(columns: tuple[str, ...], **options: Any) -> NamedTask:
    return NamedTask(
        name="record",
        summary="which entity of a passage fills the blank of a sentence? F1 and exact match",
        columns={column: (column,) for column in columns},
        files=files("ReCoRD"),
        tfds=Online("super_glue/record"),
        hugging_face=Online("aps/super_glue", config="record"),
        best_metric="f1",
        **options,
    )


LABELLED = (
    _record(
        ("question", "context", "answers"),
        kind="spans",
        expand=_queries,
        written=_record(
            ("question", "entities", "context", "answer"),
            kind="texts",
            expand=_written,
            prompt="record query: {question} entities: {entities} passage: {context}",
            target="{answer}",
            metrics=("written_spans",),
            several_targets=True,
        ),
    ),
)
"""The task."""

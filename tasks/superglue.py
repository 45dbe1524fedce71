"""SuperGLUE's tasks by name (Wang et al., 2019), with T5's prompts and words for labels.

Files are those of super.gluebenchmark.com: `--data_dir` is the folder of a task, or the one above
it. ReCoRD and WSC, whose rows T5 makes in ways of its own, are not among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t5x_like.tasks.glue import prompt

from t5x_like.data.labelled.distributed_files import Files
from t5x_like.data.labelled.named_tasks import NamedTask, Online

_FALSE_TRUE = {"0": "False", "1": "True", "false": "False", "true": "True"}


def _superglue(
    name: str,
    folder: str,
    summary: str,
    columns: Sequence[str],
    labels: Mapping[str, str],
    **options: Any,
) -> NamedTask:
    called = options.pop("called", name)
    return NamedTask(
        name=called,
        summary=summary,
        columns={column: (column,) for column in (*columns, "label")},
        labels=labels,
        prompt=options.pop("prompt", prompt(name, *columns)),
        files=[
            Files(
                (f"{folder}/train.jsonl*", "train.jsonl*"), (f"{folder}/val.jsonl*", "val.jsonl*")
            )
        ],
        tfds=Online(f"super_glue/{name}"),
        hugging_face=Online("aps/super_glue", config=name),
        **{"kind": "classes", **options},
    )


def _answers(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each answer of MultiRC, whose rows are paragraphs, or have one answer each."""
    if "answer" in row:
        yield {**row, "paragraph": _without_marks(row["paragraph"])}
        return
    passage = row["passage"]
    for question in passage["questions"]:
        for answer in question["answers"]:
            yield {
                "question": question["question"],
                "answer": answer["text"],
                "paragraph": _without_marks(passage["text"]),
                "label": answer["label"],
            }


def _without_marks(text: str) -> str:
    """A paragraph of MultiRC without its HTML, as T5 reads it."""
    return re.sub(r"<(/)?b>", "", re.sub(r"<br>", " ", text))


LABELLED = (
    _superglue(
        "boolq",
        "BoolQ",
        "the answer to a yes/no question about a passage",
        ("question", "passage"),
        _FALSE_TRUE,
    ),
    _superglue(
        "cb",
        "CB",
        "does a sentence follow from a text, or its contrary?",
        ("premise", "hypothesis"),
        {name: name for name in ("entailment", "contradiction", "neutral")},
    ),
    _superglue(
        "multirc",
        "MultiRC",
        "is this an answer to a question about a paragraph?",
        ("paragraph", "question", "answer"),
        _FALSE_TRUE,
        prompt="multirc question: {question} answer: {answer} paragraph: {paragraph}",
        expand=_answers,
    ),
    _superglue(
        "rte",
        "RTE",
        "does a sentence follow from a text? SuperGLUE's files",
        ("premise", "hypothesis"),
        {"entailment": "entailment", "not_entailment": "not_entailment"},
        called="rte_superglue",
    ),
    _superglue(
        "wic",
        "WiC",
        "has a word the same sense in two sentences?",
        ("sentence1", "sentence2", "word"),
        _FALSE_TRUE,
    ),
)
"""The tasks."""

"""SuperGLUE's tasks by name (Wang et al., 2019), with T5's prompts and words for labels.

Files are those of super.gluebenchmark.com: `--data_dir` is the folder of a task, or the one above
it. ReCoRD and WSC, whose rows are other ones for a T5, have files of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t5x_like.tasks.glue import prompt

from t5x_like.data.labelled.distributed_files import Files
from t5x_like.data.labelled.named_tasks import NamedTask, Online

FALSE_TRUE = {"0": "False", "1": "True", "false": "False", "true": "True"}
_ENTAILMENT = {"entailment": "entailment", "not_entailment": "not_entailment"}
_PREMISE = {"premise": ("premise", "sentence1"), "hypothesis": ("hypothesis", "sentence2")}


def files(folder: str) -> list[Files]:
    """train.jsonl and val.jsonl, in the folder of a task or in `--data_dir` itself."""
    train, dev = (
        tuple(f"{place}{name}.jsonl*" for place in (f"{folder}/", "")) for name in ("train", "val")
    )
    return [Files(train, dev)]


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
        files=files(folder),
        tfds=Online(f"super_glue/{name}"),
        hugging_face=Online("aps/super_glue", config=name),
        **{"kind": "classes", **options},
    )


def _diagnostics(name: str, folder: str, summary: str, **options: Any) -> NamedTask:
    """Rows for a model of SuperGLUE's RTE, as whose T5 reads them."""
    return NamedTask(
        name=name,
        summary=f"{summary}, for a model of rte_superglue",
        kind="classes",
        columns={**_PREMISE, "label": ("label",)},
        labels={**_ENTAILMENT, "0": "entailment", "1": "not_entailment"},
        prompt=prompt("rte", "premise", "hypothesis"),
        files=[Files(("",), (f"{folder}/{folder}.jsonl*", f"{folder}.jsonl*"))],
        tfds=Online(f"super_glue/{name}", "test", train=None),
        hugging_face=Online("aps/super_glue", "test", name, train=None),
        asked_of="rte_superglue",
        **options,
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
        FALSE_TRUE,
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
        FALSE_TRUE,
        prompt="multirc question: {question} answer: {answer} paragraph: {paragraph}",
        expand=_answers,
        metrics=("written_f1:True", "exact_match"),
        best_metric="f1",
    ),
    _superglue(
        "rte",
        "RTE",
        "does a sentence follow from a text? SuperGLUE's files",
        ("premise", "hypothesis"),
        _ENTAILMENT,
        called="rte_superglue",
    ),
    _diagnostics(
        "axb",
        "AX-b",
        "broad diagnostics: Matthews' correlation",
        metrics=("written_mcc", "exact_match"),
    ),
    _diagnostics("axg", "AX-g", "pairs of sentences that differ in a gender"),
    _superglue(
        "wic",
        "WiC",
        "has a word the same sense in two sentences?",
        ("sentence1", "sentence2", "word"),
        FALSE_TRUE,
    ),
)
"""The tasks."""

"""A task of labels with the examples of its cache and the metrics of its objective."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_like.core.protocols.data import WEIGHT
from t5x_like.data.samples.order import spread
from t5x_like.data.samples.samples import RecordSamples, WindowSamples
from t5x_like.evaluation.label_metrics import LabelMetric
from t5x_like.evaluation.task_metrics import decoder
from t5x_like.evaluation.tasks import span_task
from t5x_like.evaluation.tasks.evaluated_task import EvaluatedTask
from t5x_like.inference.heads.joined_windows import words_asked
from t5x_like.inference.heads.n_best import WINDOWS

if TYPE_CHECKING:
    from t5x_like.core.protocols.answers import TaskMetric
    from t5x_like.data.streams.stream import Examples
    from t5x_like.data.task import Task


_READ = ("text", "words")


def is_labelled(task: Task) -> bool:
    """Whether answers to the task are labels, for which its objective names metrics."""
    return bool(task.measures) and task.objective.answers != "text"


def of_rows(
    rows: Examples, split: str, *, kinds: Collection[str], at_most: int | None = None
) -> EvaluatedTask:
    """The examples of a split and their labels: of tags those of all words, cut ones too.

    An example is a row: a text, or a window of it. `at_most` counts texts, or questions.

    Args:
      rows: the rows of the split, one example each.
      split: the split.
      kinds: the fields of `Answers` that the model gives.
      at_most: the most examples, spread evenly; None for all.
    """
    task = rows.task
    metrics: Sequence[TaskMetric]
    if task.objective.answers in WINDOWS:
        examples, metric = span_task.examples(rows, at_most=at_most)
        metrics = [metric]
    else:
        examples, metrics = _labelled(rows, at_most)
    return EvaluatedTask(
        name=task.name,
        split=split,
        examples=examples,
        total=len(rows),
        lengths=task.lengths,
        metrics=metrics if "labels" in kinds else [],
        decode=decoder(task.vocabulary),
    )


def _labelled(
    rows: Examples, at_most: int | None
) -> tuple[list[dict[str, Any]], list[LabelMetric]]:
    """The rows of texts, and the metrics that join them."""
    task, samples, answers = rows.task, rows.samples, rows.task.objective.answers
    assert isinstance(samples, RecordSamples | WindowSamples)
    reads = [column for column in task.objective.reads if column.name != WEIGHT.name]
    (column,) = (column for column in reads if column.holds not in _READ)
    examples: list[dict[str, Any]] = []
    targets: list[Any] = []
    for number in spread(len(samples.split), at_most):
        label = samples.split.record(number)[column.name]
        numbers = samples.rows(number)
        asked: list[dict[str, Any]] = [{} for _ in numbers]
        if answers == "tags":
            bounds = [_bounds(samples[n][0]) for n in numbers]
            of_words = words_asked(task.objective, bounds, label >= 0, task.token_ids)
            asked = [words._asdict() for words in of_words]
        for n, words in zip(numbers, asked, strict=True):
            (example,) = rows.features(n)
            examples.append({**example, **words, "text": len(targets)})
        targets.append(label[label >= 0].tolist() if label.ndim else label.item())
    names = task.label_names.get(column.name, ())
    return examples, [LabelMetric(name, names, targets, answers) for name in task.measures]


def _bounds(sample: Mapping[str, np.ndarray]) -> tuple[int, int]:
    """Where a row of words begins and ends in its text, in tokens."""
    begin, end = sample.get("window", (0, len(sample["words"])))
    return int(begin), int(end)

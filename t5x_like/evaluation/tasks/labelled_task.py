"""A task of labels with the examples of its cache and the metrics of its objective."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.core.protocols.data import WEIGHT
from t5x_like.data.samples.order import spread
from t5x_like.data.samples.samples import RecordSamples
from t5x_like.evaluation.label_metrics import LabelMetric
from t5x_like.evaluation.task_metrics import decoder
from t5x_like.evaluation.tasks import span_task
from t5x_like.evaluation.tasks.evaluated_task import EvaluatedTask

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

    Of spans, an example is a window, and `at_most` counts questions.

    Args:
      rows: the rows of the split, one example each.
      split: the split.
      kinds: the fields of `Answers` that the model gives.
      at_most: the most examples, spread evenly; None for all.
    """
    task = rows.task
    metrics: Sequence[TaskMetric]
    if task.objective.answers == "spans":
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
    """Examples with their `target`, and the metrics of it."""
    task = rows.task
    assert isinstance(rows.samples, RecordSamples)
    reads = [column for column in task.objective.reads if column.name != WEIGHT.name]
    (column,) = (column for column in reads if column.holds not in _READ)
    records = rows.samples.split
    examples = []
    for number in spread(len(rows), at_most):
        ((example,), label) = rows.features(number), records.record(number)[column.name]
        target = label[label >= 0].tolist() if label.ndim else label.item()
        examples.append({**example, "target": target})
    names = task.label_names.get(column.name, ())
    return examples, [LabelMetric(name, names) for name in task.measures]

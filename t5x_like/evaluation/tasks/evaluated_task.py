"""A task with the examples and the metrics that evaluate a model on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.core.protocols.answers import TaskMetric
from t5x_like.data.cache.records.metric_names import MetricNames
from t5x_like.data.seqio.registered_tasks import registered_task
from t5x_like.data.task_files import evaluation_files
from t5x_like.data.vocabulary_choice import Once, alone
from t5x_like.evaluation.task_metrics import Decode, FunctionMetric, decoder

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.data.dataset import Data
    from t5x_like.data.task import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluatedTask:
    """The examples of a split and the metrics that are computed on them.

    Attributes:
      name: the name of the task.
      split: the split.
      examples: the examples after all steps of the task, with the texts that they were made of.
      total: the number of examples in the split.
      lengths: the maximum number of tokens of each feature.
      metrics: the metrics that can be computed here.
      decode: turns target ids into text.
    """

    name: str
    split: str
    examples: Sequence[Mapping[str, Any]]
    total: int
    lengths: Mapping[str, int]
    metrics: Sequence[TaskMetric]
    decode: Decode

    def cut(self) -> list[str]:
        """A line for each feature that fills its whole length in some examples."""
        lines = []
        for name, length in self.lengths.items():
            full = sum(len(example[name]) >= length for example in self.examples if name in example)
            if full:
                lines.append(
                    f"{self.name}: {full:,} of {len(self.examples):,} examples fill all {length} "
                    f"tokens of {name}: what is longer is cut there (TASK_FEATURE_LENGTHS)"
                )
        return lines


def open_task(
    data: Data,
    task: Task,
    *,
    split: str,
    vocabulary: Vocabulary,
    kinds: Collection[str],
    default: Sequence[TaskMetric] = (),
    at_most: int | None = None,
    once: Once = alone,
) -> tuple[EvaluatedTask, list[str]]:
    """A task with its examples, and lines about metrics that cannot be computed.

    Args:
      data: where the examples are, with the feature lengths.
      task: the task; SeqIO's registry or its record has its metrics.
      split: the split.
      vocabulary: the vocabulary of the run.
      kinds: the fields of `Answers` that the model gives.
      default: the metrics of a task that has none of its own.
      at_most: the most examples to read, spread evenly; None for all.
      once: lets one process make the file of the examples.

    Raises:
      NoExamplesError: SeqIO does not have the task, and there is no file of its examples.
      ValueError: the task has no such split, or a metric function has other arguments than SeqIO
        allows.
    """
    metrics, decode, missing = metrics_of(task, vocabulary)
    without = f"task {task.name!r} is evaluated without metric "
    lines = [without + what for what in missing]
    usable = []
    for metric in metrics or default:
        if lacks := set(metric.reads) - set(kinds):
            what = " and ".join(sorted(lacks)).replace("_", " ")
            lines.append(f"{without}{metric.name}: this model gives no {what}")
        else:
            usable.append(metric)
    file = data.evaluation_file(task.name, split, vocabulary=vocabulary, once=once)
    file_examples = evaluation_files.read(file, at_most=at_most)
    if not file_examples.total:
        raise ValueError(f"task {task.name!r} has no examples in split {split!r}")
    return EvaluatedTask(
        name=task.name,
        split=split,
        examples=file_examples.examples,
        total=file_examples.total,
        lengths=data.lengths or {},
        metrics=usable,
        decode=decode,
    ), lines


def metrics_of(task: Task, vocabulary: Vocabulary) -> tuple[list[TaskMetric], Decode, list[str]]:
    """The metrics of a task, the function that decodes its targets, and what is missing and why.

    They are those of SeqIO's registry, or else those that the record of the task names.

    Raises:
      ValueError: a metric function has other arguments than SeqIO allows.
    """
    registered = registered_task(task.name)
    metrics: list[TaskMetric] = []
    missing: list[str] = []
    if registered is not None:
        from t5x_like.data.seqio import task_metrics

        decode = task_metrics.decode(registered)
        functions, postprocess_fn = task_metrics.functions(registered), registered.postprocessor
        metrics += task_metrics.objects(registered)
    else:
        decode = decoder(vocabulary)
        functions, postprocess_fn, missing = (task.metrics or MetricNames()).functions()
    metrics += [FunctionMetric(function, postprocess_fn, decode) for function in functions]
    for metric in metrics:
        _ = metric.reads
    return metrics, decode, missing

"""Metrics from the frequencies of tokens and labels alone, beside those of a model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.data.rows import task_rows
from t5x_like.data.samples.samples import RecordSamples, WindowSamples
from t5x_like.data.streams import stream
from t5x_like.evaluation import baselines
from t5x_like.evaluation.evaluator import evaluate, with_row_names
from t5x_like.evaluation.label_metrics import METRICS

if TYPE_CHECKING:
    from t5x_like.data.task import Task

Metrics = dict[str, float]
_PERPLEXITY = re.compile(r"(.*?)(?:pseudo_)?perplexity")
_LABELS = ("classes", "choices", "tags")
_ROWS = 4096
"""Process 0 reads the rows for all, who wait: so many give the same figures to three digits."""


def text_counts(tasks: Iterable[Task]) -> dict[str, np.ndarray]:
    """{task: how often each id occurs in its training text}.

    A mixture may have tasks that are only evaluated: these have the counts of all others together.
    """
    tasks = [*tasks]
    counts = {
        task.name: np.array(task.cache.split("train").counts["targets"])
        for task in tasks
        if task.cache is not None
        and "train" in task.cache.manifest.splits
        and "targets" in task.cache.manifest.features
    }
    together = sum(counts.values(), np.zeros((), np.int64))
    return {task.name: counts.get(task.name, together) for task in tasks}


def unigram_metrics(
    rows: Sequence[baselines.NumpyBatch],
    counts: np.ndarray,
    task: Task,
    *,
    of_model: Mapping[str, float],
    token_bytes: np.ndarray | None,
) -> Metrics:
    """The metrics of the unigram model and of knowing how common labels are.

    Args:
      rows: the evaluated rows.
      counts: int [vocab_size], occurrences of each id in the training text.
      task: the opened task of the rows.
      of_model: the model's metrics on the rows, whose names are used.
      token_bytes: as in `evaluator.evaluate`.
    """
    if task.objective.answers in _LABELS:
        return baselines.class_shares(rows)
    # No training text has been counted, or no token is predicted (word vectors).
    if not counts.ndim or not all(map(baselines.has_targets, rows)):
        return {}
    step = baselines.unigram(baselines.with_special_targets(counts, rows, task.token_ids))
    frequent = evaluate(step, None, rows, token_bytes=token_bytes)
    metrics = {name: frequent[name] for name in ("bits_per_byte",) if name in frequent}
    for name in of_model:
        if match := _PERPLEXITY.fullmatch(name):
            metrics[f"{match[1]}loss"] = frequent["loss"]
            metrics[f"{match[1]}accuracy"] = frequent["accuracy"]
            metrics[name] = frequent["perplexity"]
    return metrics | baselines.label_shares(rows, of_model)


def constant_answers(examples: stream.Examples) -> Metrics:
    """The best value of each metric of classes over all models that give one answer to all texts.

    There are none for other kinds of labels.
    """
    task, samples = examples.task, examples.samples
    if task.objective.answers != "classes" or not isinstance(
        samples, RecordSamples | WindowSamples
    ):
        return {}
    (column,) = (column for column in task.objective.reads if column.holds == "label")
    split = samples.split
    targets = [split.record(number)[column.name].item() for number in range(len(split))]
    names = task.label_names[column.name]
    best: Metrics = {}
    for answer in np.eye(len(names)):
        for measure in task.measures:
            values = METRICS[measure](targets, [answer] * len(targets), names)
            best |= {name: max(value, best.get(name, value)) for name, value in values.items()}
    return best


def held_out_baselines(
    validation: Sequence[stream.Examples],
    tasks: Sequence[Task],
    *,
    of_model: Mapping[str, Metrics],
    batch_size: int,
    batches: int,
    token_bytes: np.ndarray | None,
) -> Metrics:
    """{"<task>/<metric>": value} of held-out rows of each task.

    Args:
      validation: the held-out examples of each task.
      tasks: all tasks of the run.
      of_model: the model's metrics by the name of each task.
      batch_size: the rows of a batch.
      batches: the most batches of each task.
      token_bytes: as in `evaluator.evaluate`.
    """
    counts = text_counts(tasks)
    metrics_by_name: Metrics = {}
    for examples in validation:
        task = examples.task
        most = min(batches, -(-_ROWS // batch_size))
        converter = task_rows.apart(examples.converter)
        apart = dataclasses.replace(examples, converter=converter)
        rows = [*stream.eval_stream(apart, batch_size=batch_size, max_batches=most)]
        metrics = unigram_metrics(
            rows,
            counts[task.name],
            task,
            of_model=of_model[task.name],
            token_bytes=token_bytes,
        )
        named = with_row_names(metrics, task.objective) | constant_answers(examples)
        metrics_by_name |= {f"{task.name}/{name}": value for name, value in named.items()}
    return metrics_by_name

"""The examples of a mixture's tasks in a split, and the identity of those tasks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from t5x_like.core.protocols.data import FeatureConverter
from t5x_like.data.rows import task_rows
from t5x_like.data.rows.feature_converters import Encoder, unpacked
from t5x_like.data.samples import order, plans
from t5x_like.data.samples.samples import is_planned
from t5x_like.data.streams.stream import Examples
from t5x_like.data.task import Task
from t5x_like.objectives.supervised.labelled_rows import LabelledRows
from t5x_like.objectives.supervised.text_to_text import TextToText

_OLD = re.compile(r"data(\.phase_\d+)?\.teacher")
"""The identity of a completer in older runs."""


def examples(
    tasks: Sequence[Task],
    split: str,
    *,
    converter: FeatureConverter,
    seed: int,
    rows: int | None = None,
    alone: bool = False,
    later: bool = False,
) -> list[Examples]:
    """The examples of each task that has some in `split`. Samples that need a plan are planned.

    Args:
      tasks: the opened tasks.
      split: `train` or `validation`.
      converter: makes model features; its `pack` decides whether several examples share a row.
      seed: the seed of order and noise.
      rows: the rows of a batch, where rows are carried from batch to batch.
      alone: whether each task fills whole batches by itself, as in evaluation; otherwise tasks
        with carried rows divide the rows of a batch in proportion to their weights.
      later: whether they are read only later, as for `make_samples`.

    Raises:
      ValueError: a task cannot be packed, or a batch has too few rows for a plan.
    """
    present = [task for task in tasks if task.has(split)]
    carried = [task.rows_multiple for task in present]
    rows_of: list[int | None] = [rows] * len(present)
    if rows is not None and not alone and any(carried):
        weights = [task.weight for task in present]
        rows_of = [*order.shares(weights, rows, multiple=math.lcm(*filter(None, carried)))]
    converters = [_converter(converter, task, split) for task in present]
    return [
        Examples(
            task,
            task.samples(split, pack=of_task.pack, rows=of_batch, later=later),
            task_rows.bound(of_task, task.name),
            seed=seed,
            rows=of_batch if multiple else None,
        )
        for task, of_task, of_batch, multiple in zip(
            present, converters, rows_of, carried, strict=True
        )
    ]


def _converter(converter: FeatureConverter, task: Task, split: str) -> FeatureConverter:
    """The converter of a task's rows: labelled texts that are held out have a row each."""
    if split == "train" or not isinstance(task.objective, LabelledRows):
        return converter
    return unpacked(converter)


def identity(tasks: Sequence[Task]) -> dict[str, Any]:
    """Flat JSON that differs exactly where the streams of examples differ."""
    facts: dict[str, Any] = {
        "data.lengths": dict(tasks[0].lengths),
        "data.weights": {task.name: task.weight for task in tasks},
    }
    for task in tasks:
        assert task.cache is not None
        manifest = task.cache.manifest
        facts[f"data.{task.name}.text"] = manifest.content_hash
        facts[f"data.{task.name}.segments"] = manifest.segmentation
        facts[f"data.{task.name}.objective"] = repr(task.objective)
        if task.label_names:
            labels = {column: list(of) for column, of in task.label_names.items()}
            facts[f"data.{task.name}.labels"] = labels
        if is_planned(task.objective.geometry(task.lengths)):
            facts[f"data.{task.name}.plan"] = plans.VERSION
        facts[f"data.{task.name}.steps"] = list(task.steps)
        facts[f"data.{task.name}.eos"] = dict(task.eos or {})
    return facts


def identity_now(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Saved metadata with the names and values that `identity` and others give it now.

    In older runs the objective of text to text is `None`, a completer is a teacher, and the
    converter of an encoder has no fields.
    """
    renamed = {}
    for name, value in saved.items():
        of_data = name.startswith("data.")
        if of_data and name.endswith(".objective") and value == "None":
            value = repr(TextToText())
        if of_data and name.endswith(".converter") and value == "Encoder()":
            value = repr(Encoder())
        renamed[name.replace(".teacher", ".completer") if _OLD.fullmatch(name) else name] = value
    return renamed

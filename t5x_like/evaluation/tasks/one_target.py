"""Held-out examples that all have one target: whoever always answers so is always right."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.data.corpora import passages
from t5x_like.data.samples.samples import RecordSamples, WindowSamples

if TYPE_CHECKING:
    import numpy as np

    from t5x_like.core.protocols.data import Column
    from t5x_like.data.streams.stream import Examples
    from t5x_like.evaluation.tasks.evaluated_task import EvaluatedTask

_TARGETS = ("label", "labels", "numbers", "tags", "spans")
"""What columns of targets hold, and those of texts to write are called so."""
_TEXT = "targets"


def of_rows(rows: Examples, split: str) -> str | None:
    """A warning where all examples of a split have one target; None otherwise.

    Args:
      rows: those of the split, one example each.
      split: its name.
    """
    samples, objective = rows.samples, rows.task.objective
    if objective.answers is None or not isinstance(samples, RecordSamples | WindowSamples):
        return None
    columns = [c for c in objective.reads if c.holds in _TARGETS or c.name == _TEXT]
    if len(columns) != 1:
        return None
    records = map(samples.split.record, range(len(samples.split)))
    only = _only(target for record in records for target in _targets(columns[0], record))
    if only is None:
        return None
    names = rows.task.label_names.get(columns[0].name) or columns[0].names or ()
    shown = _shown(columns[0], only, names, rows)
    return _warning(rows.task.name, split, len(samples.split), shown)


def of_texts(task: EvaluatedTask) -> str | None:
    """A warning where all examples have one text to write; None otherwise."""
    told = [example.get("targets_pretokenized") for example in task.examples]
    only = _only(text for text in told if isinstance(text, str | bytes))
    if only is None or not all(text == only for text in told):
        return None
    shown = only.decode() if isinstance(only, bytes) else only
    return _warning(task.name, task.split, len(told), repr(shown))


def _only(targets: Iterable[Hashable]) -> Any:
    """The one target that there is; None where there are several, or none."""
    found: set[Hashable] = set()
    for target in targets:
        found.add(target)
        if len(found) > 1:
            return None
    return next(iter(found), None)


def _targets(column: Column, record: dict[str, np.ndarray]) -> Sequence[Hashable]:
    """The targets of a record: one, or those of its words."""
    values = record[column.name]
    if column.holds == "tags":
        return [(tag,) for tag in values[values >= 0].tolist()]
    if column.holds == "spans":
        text = passages.text(record["characters"])
        return [tuple(text[begin:end] for begin, end in values[:1, 2:].tolist())]
    return [tuple(values.reshape(-1).tolist())]


def _shown(column: Column, target: Sequence[Any], names: Sequence[str], rows: Examples) -> str:
    if column.name == _TEXT:
        return repr(rows.task.vocabulary.decode([*target]))
    words = [repr(names[place]) if names else repr(place) for place in target]
    none = {"spans": "no answer", "labels": "no class"}.get(column.holds, "nothing")
    return ", ".join(words) or none


def _warning(task: str, split: str, count: int, target: str) -> str:
    return (
        f"warning: task {task!r}: all {count:,} held-out examples (split {split!r}) have one "
        f"target, {target}: a model that always says so is always right, and accuracy and other "
        "metrics tell nothing. Hold out more rows, or take another file or split (--dev, --split)"
    )

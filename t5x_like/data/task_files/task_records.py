"""JSON files with the properties of tasks that training needs besides the caches.

With them, a cached SeqIO task or mixture trains where SeqIO is not installed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files
from t5x_like.data.cache import typed_json
from t5x_like.data.cache.records import recorded_objects
from t5x_like.data.cache.records.metric_names import MetricNames
from t5x_like.data.rows import late_steps
from t5x_like.data.task import Task

_DAMAGE = (
    *(KeyError, TypeError, AttributeError, RecursionError),
    *(UnicodeDecodeError, json.JSONDecodeError),
)
_FIELDS = ("name", "directory", "objective", "steps", "eos", "weight", "metrics")


def save(file: Path, tasks: Sequence[Task]) -> None:
    """Writes the record of a task (one) or mixture (several), complete or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    whole_files.write(file, _encode(tasks))


def holds(file: Path, tasks: Sequence[Task]) -> bool:
    """Whether the file holds exactly these tasks."""
    return file.is_file() and file.read_bytes() == _encode(tasks)


def _encode(tasks: Sequence[Task]) -> bytes:
    rows = [{name: getattr(task, name) for name in _FIELDS} for task in tasks]
    rows = [
        {
            **row,
            "objective": recorded_objects.to_json(row["objective"]),
            "metrics": None if row["metrics"] is None else dataclasses.asdict(row["metrics"]),
        }
        for row in rows
    ]
    return json.dumps(rows, indent=1).encode()


def load(file: Path) -> tuple[Task, ...]:
    """Reads the tasks that `save` wrote.

    Raises:
      ValueError: the file is damaged, or names a class that is neither an objective of this package
        nor of a module that the user has named.
    """
    try:
        rows = json.loads(file.read_text())
        if not isinstance(rows, list) or not rows:
            raise TypeError("it holds no list of tasks")
        return tuple(_task(row, f"{file}: task {number}") for number, row in enumerate(rows, 1))
    except _DAMAGE as error:
        raise ValueError(
            f"{file} is not a task record ({error!r}): cache the task again"
        ) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Row:
    """The fields of a task in a record, but for those that have readers of their own."""

    name: str
    directory: str
    steps: tuple[str, ...]
    eos: Mapping[str, int] | None
    weight: int


def _task(row: dict[str, Any], where: str) -> Task:
    plain = {name: row[name] for name in _FIELDS if name not in ("objective", "metrics")}
    if unknown := row.keys() - {*_FIELDS}:
        raise ValueError(f"{where} has the field {min(unknown)!r}")
    read = typed_json.read(_Row, plain, where)
    if unknown := {*read.steps} - late_steps.STEPS.keys():
        raise ValueError(f"{where} has the step {min(unknown)!r}")
    folder, _, rest = read.directory.partition("/")
    if folder != "tokens" or not rest or "/" in rest or rest in (".", "..") or "\0" in rest:
        raise ValueError(f"{where}: its cache {read.directory!r} is not a folder of tokens/")
    metrics = row.get("metrics")
    return Task(
        **vars(read),
        objective=recorded_objects.objective(row["objective"], f"{where}: its objective"),
        metrics=None if metrics is None else MetricNames.from_json(metrics, where),
    )

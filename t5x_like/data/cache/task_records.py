"""JSON files with the properties of tasks that training needs besides the caches.

With them, a cached SeqIO task or mixture trains where SeqIO is not installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files
from t5x_like.core.protocols import Objective
from t5x_like.data.cache.metric_names import MetricNames
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
            "objective": _to_json(row["objective"]),
            "metrics": None if row["metrics"] is None else dataclasses.asdict(row["metrics"]),
        }
        for row in rows
    ]
    return json.dumps(rows, indent=1).encode()


def load(file: Path) -> tuple[Task, ...]:
    """Reads the tasks that `save` wrote.

    Raises:
      ValueError: the file is damaged, or names a class that is neither an objective of this package
        nor in a module imported so far.
    """
    try:
        rows = json.loads(file.read_text())
        return tuple(
            Task(
                **{
                    **row,
                    "objective": _objective_from_json(row["objective"], file),
                    "steps": tuple(row["steps"]),
                    "metrics": _metrics_from_json(row.get("metrics")),
                }
            )
            for row in rows
        )
    except _DAMAGE as error:
        raise ValueError(
            f"{file} is not a task record ({error!r}): cache the task again"
        ) from error


def _metrics_from_json(fields: dict[str, Any] | None) -> MetricNames | None:
    return None if fields is None else MetricNames.from_json(fields)


def _to_json(value: Any) -> Any:
    """A dataclass as its class and fields, a tuple as a list, numbers and text unchanged."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {
            "class": f"{kind.__module__}:{kind.__qualname__}",
            "fields": {name: _to_json(getattr(value, name)) for name in fields},
        }
    if isinstance(value, tuple):
        return [_to_json(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"{value!r} cannot be kept in a task record: make the fields of an objective numbers, "
        "text, tuples of these, or frozen dataclasses"
    )


def _from_json(value: Any, file: Path) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(part, file) for part in value)
    if not isinstance(value, dict):
        return value
    fields = {name: _from_json(part, file) for name, part in value["fields"].items()}
    return _class(value["class"], file)(**fields)


def _class(address: str, file: Path) -> Any:
    module, _, name = address.partition(":")
    # A file may only name modules of this package, and modules that the user has imported.
    if module.startswith("t5x_like.objectives."):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    if module not in sys.modules:
        raise ValueError(
            f"{file} names {address}: import its module first, with --module {module} "
            f"(MIXTURE_OR_TASK_MODULE='{module}')"
        )
    kind = getattr(sys.modules[module], name, None)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(f"{file} names {address}, which is not an objective or part of one")
    return kind


def _objective_from_json(fields: dict[str, Any] | None, file: Path) -> Objective | None:
    made: Any = _from_json(fields, file)
    if made is not None and not hasattr(made, "geometry"):
        raise ValueError(f"{file} names {made}, which is not an objective")
    return made

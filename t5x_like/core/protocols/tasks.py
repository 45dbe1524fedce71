"""The names of what batches of several tasks hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")

TASK = "task"
"""The feature that numbers a row's task among those of a model, from 0; int32, -1 for none."""


def of_task(task: str, name: str) -> str:
    """The name of a feature or a metric that is one task's alone: `sst2/labels`."""
    return f"{task}/{name}"


def own(values: Mapping[str, Value], task: str) -> dict[str, Value]:
    """Those of a task, by the names that they have where there is one task only."""
    beginning = of_task(task, "")
    return {
        name.removeprefix(beginning): value
        for name, value in values.items()
        if name.startswith(beginning)
    }

"""The steps of a SeqIO task before and after its cache point, in terms of this package."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from t5x_like.core.protocols import Objective
from t5x_like.data.extras import require
from t5x_like.data.seqio.objective_step import ObjectiveStep

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf
else:
    seqio = require("seqio", "data", purpose="a SeqIO task")
    tf = require("tensorflow", "data", purpose="a SeqIO task")

TWINS: Sequence[tuple[Callable, str]] = (
    (seqio.preprocessors.append_eos, "append_eos"),
    (seqio.preprocessors.append_eos_after_trim, "append_eos_after_trim"),
    (seqio.utils.trim_dataset, "trim"),
)
"""SeqIO's steps that have a twin in `late_steps`, and the twin's name."""


@dataclasses.dataclass(frozen=True)
class PostCache:
    """The steps that a SeqIO task applies to a cached record, in terms of this package.

    Attributes:
      objective: our objective, if the task has one; it runs first.
      steps: names in `late_steps.STEPS`, in order, without the final trimming.
      refused: the first later step that has no counterpart; None if the task trains from its cache.
      cached_steps: the number of `task.preprocessors` that run before the cache.
      eos: the id to append to each feature that takes one.
    """

    objective: Objective | None
    steps: tuple[str, ...]
    refused: str | None
    cached_steps: int
    eos: Mapping[str, int]


def describe(task: seqio.Task) -> PostCache:
    """The steps of a task after its `CacheDatasetPlaceholder`.

    The recognised steps are an `ObjectiveStep` in first place and the functions of `TWINS`. A
    partial application of such a function with bound arguments is not recognised.

    In a task without a placeholder, the recognised steps at its end are later steps, and the cache
    holds the output of the steps before them. However, a step that draws random numbers or uses the
    sequence length, which SeqIO passes by argument name, is a later step, and so are all that
    follow it.
    """
    steps = list(task.preprocessors)
    marks = [isinstance(step, seqio.CacheDatasetPlaceholder) for step in steps]
    cached = marks.index(True) if any(marks) else _cache_point(steps)
    objective: Objective | None = None
    names: list[str] = []
    refused = None
    for step in steps[cached + any(marks) :]:
        twin = _twin(step)
        if isinstance(step, ObjectiveStep) and objective is None and not names:
            objective = step.objective
        elif twin:
            names.append(twin)
        else:
            refused = _step_name(step)
            break
    eos = {
        name: feature.vocabulary.eos_id
        for name, feature in task.output_features.items()
        if feature.add_eos
    }
    return PostCache(objective, tuple(names), refused, cached, eos)


def before_cache(task: seqio.Task, ds: tf.data.Dataset) -> tf.data.Dataset:
    """The data after the steps of `task` before its cache point, with or without a placeholder."""
    with seqio.utils.map_seed_manager(0):
        for step in task.preprocessors[: describe(task).cached_steps]:
            ds = seqio.utils.add_kwargs_to_transform(
                step, sequence_length=None, output_features=task.output_features
            )(ds)
    return ds


def _cache_point(steps: Sequence[Callable]) -> int:
    """The cache point of a task without a placeholder: the index of its first later step."""
    point = len(steps)
    while point and (isinstance(steps[point - 1], ObjectiveStep) or _twin(steps[point - 1])):
        point -= 1
    at_run_time = (i for i, step in enumerate(steps) if _is_run_time(step))
    return min(point, next(at_run_time, point))


def _is_run_time(step: Callable) -> bool:
    """Whether a step depends on the run, by its sequence length or seed."""
    if dataclasses.is_dataclass(step):
        arguments = {field.name for field in dataclasses.fields(step)}
    else:
        arguments = set(inspect.signature(step).parameters)
    if isinstance(step, functools.partial):
        arguments -= step.keywords.keys()
    return not arguments.isdisjoint({"sequence_length", "seed", "seeds"})


def _twin(step: Callable) -> str | None:
    """The name of a step's twin, also inside an empty partial application or gin's wrapper."""
    while True:
        if isinstance(step, functools.partial) and not step.args and not step.keywords:
            step = step.func
        elif getattr(step, "__globals__", {}).get("__name__") == "gin.config":
            step = inspect.unwrap(step)
        else:
            return next((name for function, name in TWINS if function is step), None)


def _step_name(step: Callable) -> str:
    while isinstance(step, functools.partial):
        step = step.func
    named = step if hasattr(step, "__qualname__") else type(step)
    return f"{named.__module__}.{named.__qualname__}"

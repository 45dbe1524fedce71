"""The steps of a SeqIO task before and after its cache point, in terms of this package."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from t5x_like.core.protocols.data import Objective
from t5x_like.data.extras import require
from t5x_like.data.seqio import t5_steps
from t5x_like.data.seqio.objective_step import ObjectiveStep
from t5x_like.data.seqio.random_steps import first_drawing, takes_seeds
from t5x_like.data.seqio.step_calls import call_of, run_arguments, step_name
from t5x_like.data.seqio.t5_steps import NoCounterpartError
from t5x_like.objectives.supervised.text_to_text import TextToText

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

DRAWS = "which draws random numbers anew in each epoch"

Applied = list[tuple[Callable, Callable]]
"""Steps, each beside the step with its arguments."""


@dataclasses.dataclass(frozen=True)
class PostCache:
    """The steps that a SeqIO task applies to a cached record, in terms of this package.

    Attributes:
      objective: ours or T5's if the task has one, which runs first; else text to text.
      steps: names in `late_steps.STEPS`, in order, without the final trimming.
      refused: the first later step that has no counterpart, and why; None if the task trains from
        its cache.
      cached_steps: the number of `task.preprocessors` that run before the cache.
      eos: the id to append to each feature that takes one.
      late: the names of the cached steps that SeqIO would run anew in each epoch, which are those
        after a placeholder, and all of a task without one.
      needs_lengths: whether one of these depends on the feature lengths.
      inputs_length: the length of inputs that gin's configuration gives to the objective, if any.
    """

    objective: Objective
    steps: tuple[str, ...]
    refused: str | None
    cached_steps: int
    eos: Mapping[str, int]
    late: tuple[str, ...] = ()
    needs_lengths: bool = False
    inputs_length: int | None = None


def describe(task: seqio.Task) -> PostCache:
    """The steps of a task that run on a cached record; those before them run for the cache.

    The steps that run on a record are an `ObjectiveStep` or an objective of T5, and then functions
    of `TWINS`: as many as the end of the task has, after its `CacheDatasetPlaceholder`. A partial
    application of a function of `TWINS` with bound arguments is none of them.
    """
    steps = list(task.preprocessors)
    start = _after_placeholder(steps)
    end, refused, recognised = len(steps), None, None
    names: list[str] = []
    while end > start and (twin := _twin(steps[end - 1])):
        names.insert(0, twin)
        end -= 1
    try:
        recognised = _objective(steps[start:end], task.output_features)
    except NoCounterpartError as error:
        refused = str(error)
    late = steps[start : end - (recognised.steps if recognised else 0)]
    if refused is None and (random := next(filter(_is_random, late), None)):
        refused = f"{step_name(random)}, {DRAWS}"
    cached = start + len(late)
    eos = {
        name: feature.vocabulary.eos_id
        for name, feature in task.output_features.items()
        if feature.add_eos
    }
    return PostCache(
        objective=TextToText() if recognised is None else recognised.objective,
        steps=tuple(names),
        refused=refused,
        cached_steps=cached if late or not start else start - 1,
        eos=eos,
        late=tuple(map(step_name, late)),
        needs_lengths=any("sequence_length" in run_arguments(step) for step in late),
        inputs_length=None if recognised is None else recognised.inputs_length,
    )


def _is_random(step: Callable) -> bool:
    return isinstance(step, ObjectiveStep) or takes_seeds(step)


def _after_placeholder(steps: Sequence[Callable]) -> int:
    """The index of the first step after the `CacheDatasetPlaceholder`; 0 without one."""
    marks = (i for i, step in enumerate(steps) if isinstance(step, seqio.CacheDatasetPlaceholder))
    return next(marks, -1) + 1


def _objective(
    steps: Sequence[Callable], features: Mapping[str, seqio.Feature]
) -> t5_steps.Found | None:
    """The objective at the end of `steps`, ours or T5's."""
    if steps and isinstance(steps[-1], ObjectiveStep):
        return t5_steps.Found(steps[-1].objective)
    return t5_steps.find(steps, features)


def before_cache(
    task: seqio.Task,
    ds: tf.data.Dataset,
    *,
    lengths: Mapping[str, int] | None = None,
    offline: bool = False,
) -> tf.data.Dataset:
    """The data after the steps of `task` that run for its cache.

    Args:
      task: the task.
      ds: the examples of its source, or of a cache that SeqIO made.
      lengths: the feature lengths, for steps after a placeholder or of a task without one.
      offline: whether `ds` is a cache that SeqIO made, after the steps before the placeholder.
    """
    early, late = _cached_steps(task, lengths)
    with seqio.utils.map_seed_manager(0):
        for _, apply in [*([] if offline else early), *late]:
            ds = apply(ds)
    return ds


def drawing_step(
    task: seqio.Task,
    ds: tf.data.Dataset,
    *,
    lengths: Mapping[str, int] | None = None,
    offline: bool = False,
) -> str | None:
    """The first step that runs for the cache though it draws numbers for each epoch; or None.

    The arguments are those of `before_cache`. Steps before a placeholder draw once in SeqIO too.
    """
    early, late = _cached_steps(task, lengths)
    if not late:
        return None
    with seqio.utils.map_seed_manager(0):
        for _, apply in [] if offline else early:
            ds = apply(ds)
        return first_drawing(late, ds)


def _cached_steps(task: seqio.Task, lengths: Mapping[str, int] | None) -> tuple[Applied, Applied]:
    """The steps that run for the cache with their arguments: up to a placeholder, and after it."""
    start = _after_placeholder(task.preprocessors)
    steps: tuple[Applied, Applied] = ([], [])
    for i, step in enumerate(task.preprocessors[: describe(task).cached_steps]):
        if i != start - 1:
            apply = seqio.utils.add_kwargs_to_transform(
                step,
                sequence_length=lengths if i >= start else None,
                output_features=task.output_features,
            )
            steps[i >= start].append((step, apply))
    return steps


def _twin(step: Callable) -> str | None:
    """The name of a step's twin, also inside a partial application or gin's wrapper."""
    function, bound = call_of(step)
    if bound:
        return None
    return next((name for known, name in TWINS if known is function), None)

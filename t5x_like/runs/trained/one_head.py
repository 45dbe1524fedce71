"""One of the heads of a run of several tasks, with its body: a model of one task."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from flax import nnx

from t5x_like.core.abilities import AnswersTasks, can
from t5x_like.core.buckets import storage
from t5x_like.core.protocols.tasks import of_task, own
from t5x_like.data.rows import task_rows
from t5x_like.models.finetuned import FineTuned
from t5x_like.runs import run_directory
from t5x_like.runs.program import build_program
from t5x_like.training.checkpointing.ranking import BestMetric

if TYPE_CHECKING:
    from t5x_like.runs.saved_model import SavedModel
    from t5x_like.runs.trained.trained_run import TrainedRun


def check(model: Any, name: str) -> None:
    """Checks that a model has a head of this name.

    Raises:
      ValueError: there is no such head, or it has one head only.
    """
    if not can(model, AnswersTasks):
        raise ValueError(
            f"this {type(model).__name__} has not the heads of several tasks, of which one could "
            "be named: leave out --task_head"
        )
    if name not in model.tasks:
        raise ValueError(f"there is no head {name!r}: the heads are {', '.join(model.tasks)}")


def which(model: Any) -> ValueError:
    """The error of a model of several tasks that is asked without the name of one."""
    return ValueError(
        f"the model has a head for each of {', '.join(model.tasks)}: name one with --task_head, or "
        f"in Python with load(...).head({model.tasks[0]!r})"
    )


def of_run(trained: TrainedRun, name: str) -> TrainedRun:
    """The run of one task of a run of several: its body and head, text, labels and metrics.

    Args:
      trained: the run of several tasks.
      name: the task.

    Raises:
      ValueError: it has no such head.
    """
    check(trained.model, name)
    run = trained.run
    best = BestMetric.parse(run.options.best_metric).names
    own_best = [metric for metric in best if metric.startswith(of_task(name, ""))]
    options = dataclasses.replace(run.options, best_metric=(own_best or best)[0])
    run = run.with_parts(
        model=functools.partial(_alone, run.model, name),
        data=run.data.of_text(name),
        options=options,
        feature_converter=task_rows.apart(run.feature_converter),
    )
    of_metrics = {of_task(name, metric) for metric in own(trained.metrics, name)}
    return dataclasses.replace(
        trained,
        run=run,
        program=build_program(run),
        params=_params(trained.params, name),
        labels=own(trained.labels, name),
        metrics={key: x for key, x in trained.metrics.items() if key in of_metrics},
    )


def of_saved(saved: SavedModel, name: str) -> SavedModel:
    """The saved model of one task of a run of several.

    Raises:
      ValueError: it has no such head.
    """
    model: Any = saved.model
    check(model, name)
    return dataclasses.replace(
        saved,
        model=model.of_task(name),
        params=_params(saved.params, name),
        labels=run_directory.read_class_names(storage.path(saved.directory), name),
        task_head=name,
    )


def _alone(make: Any, name: str, *, rngs: nnx.Rngs) -> FineTuned:
    """Constructs the model of one task."""
    model: FineTuned = make(rngs=rngs).of_task(name)
    return model


def _params(params: Any, name: str) -> Any:
    """The parameters of a model of one task, among those of several: a plain dict, or a state."""
    return type(params)({**params, "head": params["head"][name]})

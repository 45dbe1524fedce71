"""The metric by which a run ranks its checkpoints, of any parameters, on its held-out rows."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from t5x_like.core.protocols.answers import Answerer
from t5x_like.data.samples.randomness import EVALUATION_SEED
from t5x_like.data.streams import mixtures, stream
from t5x_like.data.vocabulary_choice import alone
from t5x_like.evaluation.evaluator import with_row_names
from t5x_like.evaluation.tasks import one_target
from t5x_like.evaluation.tasks.in_training import Measuring, TaskEvaluation
from t5x_like.runs.program import build_program
from t5x_like.runs.trained import trained_run
from t5x_like.runs.trained.teacher_forced import TeacherForced
from t5x_like.runs.trained.trained_run import TrainedRun, batch_to_device
from t5x_like.training.checkpointing.ranking import BestMetric
from t5x_like.training.optimization.parameter_paths import path_name

if TYPE_CHECKING:
    from t5x_like.data.streams.stream import Examples
    from t5x_like.runs.saved_model import SavedModel


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """A function of parameters, without those of adapters: the metric on all held-out rows.

    Attributes:
      best: the metric.
      run: the run whose rows they are, with a program for these parameters.
      rows: the held-out rows of each task.
      teacher_forced: measures the loss and what comes with it.
      tasks: measures the metrics of tasks; None where there are none.
    """

    best: BestMetric
    run: TrainedRun
    rows: Sequence[Examples]
    teacher_forced: TeacherForced
    tasks: TaskEvaluation | None

    @classmethod
    def of(cls, model: SavedModel, report: Callable[[str], None]) -> HeldOut:
        """The held-out rows of the run that a model was read from.

        Args:
          model: the model, without adapters.
          report: shows a line to the user.

        Raises:
          ValueError, OSError: it is not the directory of a run, or holds no rows out.
        """
        trained = _without_adapters(trained_run.load(model.directory, step=model.step).in_phase())
        run = trained.run
        opened = run.data.open()
        rows = mixtures.examples(
            opened,
            "validation",
            converter=run.feature_converter,
            seed=EVALUATION_SEED,
            rows=trained.rows,
            alone=True,
        )
        if not rows:
            raise ValueError(f"{model.directory} holds no rows out, by which runs could be chosen")
        for examples in rows:
            if (warning := one_target.of_rows(examples, "validation")) is not None:
                report(warning)
        tasks = Measuring(
            data=run.data,
            converter=run.feature_converter,
            kinds=trained.kinds,
            at_most=sys.maxsize,
            report=report,
            once=alone,
        ).opened(opened)
        features = {task.name: task.features for task in opened}

        def answerer(params: Any, name: str) -> Answerer:
            of_params = dataclasses.replace(trained, params=params)
            lengths = opened[0].lengths
            return of_params.answerer(lengths, batch_size=trained.rows, features=features[name])

        evaluation = TaskEvaluation(tasks, answerer, report) if tasks else None
        best = BestMetric.parse(run.options.best_metric)
        return cls(best, trained, rows, TeacherForced(trained), evaluation)

    def __call__(self, parameters: Mapping[str, np.ndarray]) -> float:
        """The value of the metric.

        Args:
          parameters: {path: value} of the model.

        Raises:
          ValueError: it has no value that is a number.
        """
        abstract = self.run.program.abstract_state.params
        params = jax.tree_util.tree_map_with_path(
            lambda path, leaf: jax.device_put(parameters[path_name(path)], leaf.sharding), abstract
        )
        values: dict[str, float] = {}
        to_device = functools.partial(batch_to_device, self.run)
        for examples in self.rows:
            batches = map(to_device, stream.eval_stream(examples, batch_size=self.run.rows))
            metrics = self.teacher_forced(params, batches)
            named = with_row_names(metrics, examples.task.objective)
            values |= {f"{examples.task.name}/{name}": x for name, x in named.items()}
        if self.tasks is not None:
            values |= self.tasks(params, values)[0]
        value = self.best.value(values)
        if value is None:
            raise ValueError(f"the held-out rows give no value of {self.best.name} (BEST_METRIC)")
        return value


def _without_adapters(trained: TrainedRun) -> TrainedRun:
    """The run with the program of the model before it was adapted."""
    if trained.run.adapt is None:
        return trained
    run = trained.run.with_parts(adapt=None)
    options = dataclasses.replace(run.options, batch_size=trained.rows, microbatches=1)
    return dataclasses.replace(
        trained, run=run, program=build_program(run.with_parts(options=options))
    )

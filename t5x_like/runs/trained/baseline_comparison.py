"""Held-out metrics of a run's model, an untrained model and simple baselines, for each task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from t5x_like.data.samples.randomness import EVALUATION_SEED
from t5x_like.data.streams import mixtures, stream
from t5x_like.data.vocabulary_choice import alone
from t5x_like.evaluation import baselines
from t5x_like.evaluation.evaluator import evaluate, with_row_names
from t5x_like.evaluation.tasks import one_target
from t5x_like.evaluation.tasks.in_training import Measuring, TaskEvaluation
from t5x_like.evaluation.unigram import text_counts, unigram_metrics
from t5x_like.runs.trained.teacher_forced import TeacherForced
from t5x_like.runs.trained.trained_run import TrainedRun, batch_to_device

if TYPE_CHECKING:
    from t5x_like.data.task import Task

Metrics = dict[str, float]
Columns = dict[str, Metrics]
Rows = Iterable[Mapping[str, np.ndarray]]


def columns(
    model: TrainedRun, *, batch_size: int, batches: int, report: Callable[[str], None]
) -> dict[str, Columns]:
    """{task: {who: {metric: value}}} on held-out rows of each task.

    `trained` and `untrained` have all metrics. For an encoder-decoder they also have the metrics
    of ordinary target tokens, as `content_<metric>`. `unigram` has the metrics that it can have:
    the loss of predicted tokens and those derived from it. `blanked` exists for an encoder-decoder
    only: the trained model, with padding in place of the encoder's ordinary tokens. `trained` also
    has the metrics of a task's author. A run of several phases is compared in the phase of the
    checkpoint.

    Args:
      model: the run, loaded for batches of `batch_size` rows.
      batch_size: the rows of a batch.
      batches: the most batches of each task.
      report: shows a line to the user.
    """
    model = model.in_phase()
    run = model.run
    tasks = run.data.open()
    counts = text_counts(tasks)
    compared = _Compared(model)
    columns_of = {}
    for examples in mixtures.examples(
        tasks,
        "validation",
        converter=run.feature_converter,
        seed=EVALUATION_SEED,
        rows=batch_size,
        alone=True,
    ):
        rows = stream.eval_stream(examples, batch_size=batch_size, max_batches=batches)
        task = examples.task
        read = stream.evaluated_rows(examples, batch_size=batch_size, max_batches=batches)
        if len(read) < len(examples):
            of_all = f"{len(read):,} of {len(examples):,} held-out rows"
            report(f"note: {task.name}: {of_all}, spread evenly")
        if (warning := one_target.of_rows(examples, "validation")) is not None:
            report(warning)
        columns_of[task.name] = {
            who: with_row_names(metrics, task.objective)
            for who, metrics in compared.columns([*rows], counts[task.name], task).items()
        }
    _add_task_metrics(
        columns_of, model, tasks, batch_size=batch_size, batches=batches, report=report
    )
    return columns_of


def _add_task_metrics(
    columns_of: dict[str, Columns],
    model: TrainedRun,
    tasks: Sequence[Task],
    *,
    batch_size: int,
    batches: int,
    report: Callable[[str], None],
) -> None:
    """Adds the metrics of tasks' authors to the columns of the trained model."""
    opened = Measuring(
        data=model.run.data,
        converter=model.run.feature_converter,
        kinds=model.kinds,
        at_most=batches * batch_size,
        report=report,
        once=alone,
    ).opened(tasks)
    if not opened:
        return
    features = {task.name: task.features for task in tasks}
    answerer = functools.partial(model.answerer, tasks[0].lengths, batch_size=batch_size)
    evaluation = TaskEvaluation(
        opened, lambda params, name: answerer(features=features[name]), report
    )
    taken = {
        f"{task}/{name}": x
        for task in columns_of
        for name, x in columns_of[task]["trained"].items()
    }
    values, _ = evaluation(model.params, taken)
    for name, value in values.items():
        task, _, metric = name.partition("/")
        columns_of[task]["trained"][metric] = value


class _Compared:
    """A trained model and an untrained one, ready to be evaluated."""

    def __init__(self, model: TrainedRun) -> None:
        self._model = model
        self._params = {"trained": model.params, "untrained": untrained_params(model)}
        self._teacher_forced = TeacherForced(model)

    def columns(
        self, rows: Sequence[Mapping[str, np.ndarray]], counts: np.ndarray, task: Task
    ) -> Columns:
        """The columns of one task; `counts` says how often each id occurs in its text."""
        metrics_of = {who: self._metrics(who, rows) for who in self._params}
        if not {"encoder_input_tokens", "decoder_target_tokens"} <= rows[0].keys():
            unigram = unigram_metrics(
                rows,
                counts,
                task,
                of_model=metrics_of["trained"],
                token_bytes=self._teacher_forced.token_bytes,
            )
            return metrics_of | ({"unigram": unigram} if unigram else {})
        ids = task.token_ids
        content = [baselines.content_only(batch, ids) for batch in rows]
        for who in self._params:
            metrics_of[who] |= _content_metrics(self._metrics(who, content))
        blanked = (baselines.blank_encoder(batch, ids) for batch in content)
        return metrics_of | {
            "unigram": _content_metrics(evaluate(baselines.unigram(counts), None, content)),
            "blanked": _content_metrics(self._metrics("trained", blanked)),
        }

    def _metrics(self, who: str, rows: Rows) -> Metrics:
        batches = (batch_to_device(self._model, batch) for batch in rows)
        return self._teacher_forced(self._params[who], batches)


def untrained_params(model: TrainedRun) -> Any:
    """Newly initialised parameters on the run's mesh, without the optimizer's state."""
    fresh = jax.jit(lambda key: model.program.init(key).params)
    return fresh(jax.random.key(model.run.options.seed))


def _content_metrics(metrics: Metrics) -> Metrics:
    return {f"content_{name}": value for name, value in metrics.items()}

"""The metrics of a run's tasks at each evaluation, beside the teacher-forced ones."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from t5x_like.data import mixtures
from t5x_like.data.cache.records.evaluation_files import NoExamplesError
from t5x_like.data.order import spread
from t5x_like.evaluation.task_metrics import ask, decoder, fields_read, measure, measured
from t5x_like.runs.batches import EVALUATION_SEED
from t5x_like.runs.evaluation import answers
from t5x_like.runs.evaluation.evaluated_task import EvaluatedTask, open_task
from t5x_like.training.hosts import multihost

if TYPE_CHECKING:
    from t5x_like.core.protocols.answers import Answerer
    from t5x_like.data.task import Task
    from t5x_like.data.vocabulary_choice import Once
    from t5x_like.runs.run import Run

_SPLIT = "validation"


@dataclasses.dataclass(frozen=True)
class TaskEvaluation:
    """Computes the metrics of tasks from parameters; all processes call it.

    Attributes:
      tasks: the tasks that have metrics.
      answerer: makes an `Answerer` of parameters.
      report: shows a line to the user.
    """

    tasks: Sequence[EvaluatedTask]
    answerer: Callable[[Any], Answerer]
    report: Callable[[str], None]
    _failures: collections.Counter[tuple[str, str]] = dataclasses.field(
        default_factory=collections.Counter
    )

    def __call__(
        self, params: Any, teacher_forced: Mapping[str, float]
    ) -> tuple[dict[str, float], bool]:
        """{"<task>/<metric>": value} of the tasks, and whether every metric has a value.

        A metric that raises is reported and left out.

        Args:
          params: the model's parameters.
          teacher_forced: values whose names are taken.
        """
        whole = True
        answerer = self.answerer(params)
        found: dict[str, float] = {}
        for task in self.tasks:
            given = ask(fields_read(task.metrics), task.examples, answerer)
            measured = ""
            if jax.process_index() == 0:
                taken = [name.removeprefix(f"{task.name}/") for name in teacher_forced]
                measured = json.dumps(measure(task.metrics, task.examples, given, taken=taken))
            # A metric may draw random numbers: all processes take the values of the first.
            measured = multihost.from_first_process("metrics of tasks", measured)
            values, failures = json.loads(measured)
            found |= {f"{task.name}/{name}": value for name, value in values.items()}
            for metric, reason in failures:
                whole = False
                self._failures[task.name, metric] += 1
                self.report(
                    f"warning: task {task.name!r}: metric {metric} has no value, "
                    f"{self._failures[task.name, metric]} time(s) so far: {reason}"
                )
        return found, whole


def task_evaluation(
    run: Run,
    tasks: Sequence[Task],
    *,
    model: Callable[[Any], Any],
    report: Callable[[str], None],
    once: Once,
) -> TaskEvaluation | None:
    """The evaluation of the tasks that have metrics; None if there are none.

    Makes or opens the files of the validation examples of SeqIO's tasks; others have a cache.

    Args:
      run: the run, with the settings of its phase.
      tasks: the opened tasks of the run.
      model: makes the module of parameters.
      report: shows a line to the user.
      once: lets one process make a file.

    Raises:
      ValueError: a metric function has other arguments than SeqIO allows.
    """
    at_most = run.options.eval_batches * run.options.batch_size
    held_out = [one for one in tasks if one.has(_SPLIT)]
    if not held_out or not at_most or not run.options.eval_period:
        return None
    opened = []
    for task in held_out:
        if task.measures:
            opened.append(_of_cache(run, task, at_most))
        elif task.metrics is not None:
            opened += _of_seqio(run, task, at_most, report=report, once=once)
    opened = [one for one in opened if one.metrics]
    for one in opened:
        if len(one.examples) < one.total:
            report(
                f"note: task {one.name!r}: its metrics are those of {len(one.examples):,} of "
                f"{one.total:,} validation examples, spread evenly (EVAL_BATCHES x BATCH_SIZE)"
            )
    if not opened:
        return None
    ids, lengths = tasks[0].token_ids, tasks[0].lengths
    return TaskEvaluation(
        opened,
        lambda params: answers.ModelAnswers(run, model(params), ids, lengths),
        report,
    )


def _of_seqio(
    run: Run, task: Task, at_most: int, *, report: Callable[[str], None], once: Once
) -> list[EvaluatedTask]:
    """A task with the examples of its file; nothing where there is none, and `report` says so."""
    try:
        opened, lines = open_task(
            dataclasses.replace(run.data, lengths=task.lengths),
            task,
            split=_SPLIT,
            vocabulary=task.vocabulary,
            kinds=answers.kinds(run),
            at_most=at_most,
            once=once,
        )
    except NoExamplesError as error:
        report(f"note: task {task.name!r}: its metrics are not computed: {error}")
        return []
    for line in lines:
        report(f"note: {line}")
    return [opened]


def _of_cache(run: Run, task: Task, at_most: int) -> EvaluatedTask:
    """A task with the examples of its cache, and with its whole targets as their tokens say them.

    A target that is cut is not an answer's aim: the text beside it is whole.
    """
    decode = decoder(task.vocabulary)
    (rows,) = mixtures.examples(
        [task],
        _SPLIT,
        converter=answers.unpacked(run.feature_converter),
        seed=EVALUATION_SEED,
        alone=True,
    )
    examples = []
    for number in spread(len(rows), at_most):
        ((example,), (record,)) = rows.features(number), rows.samples[number]
        examples.append({**example, "targets_pretokenized": decode(record["targets"].tolist())})
    return EvaluatedTask(
        name=task.name,
        split=_SPLIT,
        examples=examples,
        total=len(rows),
        lengths=task.lengths,
        metrics=answers.computable(run, measured(task.measures, decode)),
        decode=decode,
    )

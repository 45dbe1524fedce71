"""The metrics of tasks at each evaluation of a run, beside the teacher-forced ones."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from t5x_like.data.rows.feature_converters import unpacked
from t5x_like.data.samples.order import spread
from t5x_like.data.samples.randomness import EVALUATION_SEED
from t5x_like.data.streams import mixtures
from t5x_like.data.task_files.evaluation_files import NoExamplesError
from t5x_like.evaluation.task_metrics import ask, decoder, fields_read, measure, measured
from t5x_like.evaluation.tasks import answers, labelled_task, several_targets
from t5x_like.evaluation.tasks.evaluated_task import EvaluatedTask, open_task
from t5x_like.training.hosts import multihost

if TYPE_CHECKING:
    from t5x_like.core.protocols.answers import Answerer
    from t5x_like.core.protocols.data import FeatureConverter
    from t5x_like.data.dataset import Data
    from t5x_like.data.streams.stream import Examples
    from t5x_like.data.task import Task
    from t5x_like.data.vocabulary_choice import Once

_SPLIT = "validation"


@dataclasses.dataclass(frozen=True)
class TaskEvaluation:
    """Computes the metrics of tasks from parameters; all processes call it.

    Attributes:
      tasks: the tasks that have metrics.
      answerer: makes an `Answerer` of parameters, for the task of a name.
      report: shows a line to the user.
    """

    tasks: Sequence[EvaluatedTask]
    answerer: Callable[[Any, str], Answerer]
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
        all_values: dict[str, float] = {}
        for task in self.tasks:
            answerer = self.answerer(params, task.name)
            task_answers = ask(fields_read(task.metrics), task.examples, answerer)
            measured = ""
            if jax.process_index() == 0:
                taken = [name.removeprefix(f"{task.name}/") for name in teacher_forced]
                measured = json.dumps(
                    measure(task.metrics, task.examples, task_answers, taken=taken)
                )
            # A metric may draw random numbers: all processes take the values of the first.
            measured = multihost.from_first_process("metrics of tasks", measured)
            values, failures = json.loads(measured)
            all_values |= {f"{task.name}/{name}": value for name, value in values.items()}
            for metric, reason in failures:
                whole = False
                self._failures[task.name, metric] += 1
                self.report(
                    f"warning: task {task.name!r}: metric {metric} has no value, "
                    f"{self._failures[task.name, metric]} time(s) so far: {reason}"
                )
        return all_values, whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measuring:
    """The means by which a run's phase measures its tasks.

    Attributes:
      data: where the examples of SeqIO's tasks are.
      converter: makes rows of examples.
      kinds: the fields of `Answers` that the model gives.
      at_most: the most examples of a task, spread evenly.
      report: shows a line to the user.
      once: lets one process make a file.
    """

    data: Data
    converter: FeatureConverter
    kinds: Collection[str]
    at_most: int
    report: Callable[[str], None]
    once: Once

    def opened(self, tasks: Sequence[Task]) -> list[EvaluatedTask]:
        """The tasks that have held-out examples and metrics.

        Makes or opens the files of the validation examples of SeqIO's tasks; others have a cache.

        Raises:
          ValueError: a metric function has other arguments than SeqIO allows.
        """
        opened = []
        for task in tasks:
            if not task.has(_SPLIT):
                continue
            if labelled_task.is_labelled(task):
                rows, at_most = self._rows(task), self.at_most
                opened.append(
                    labelled_task.of_rows(rows, _SPLIT, kinds=self.kinds, at_most=at_most)
                )
            elif task.measures:
                opened.append(self._of_cache(task))
            elif task.metrics is not None:
                opened += self._of_seqio(task)
        measured = [evaluated for evaluated in opened if evaluated.metrics]
        for evaluated in measured:
            read = len(evaluated.examples)
            if read < evaluated.total:
                self.report(
                    f"note: task {evaluated.name!r}: its metrics are those of {read:,} of "
                    f"{evaluated.total:,} validation examples, spread evenly (EVAL_BATCHES x "
                    "BATCH_SIZE)"
                )
        return measured

    def _of_seqio(self, task: Task) -> list[EvaluatedTask]:
        """A task with the examples of its file; an empty list, and a note, if there is no file."""
        try:
            opened, lines = open_task(
                dataclasses.replace(self.data, lengths=task.lengths),
                task,
                split=_SPLIT,
                vocabulary=task.vocabulary,
                kinds=self.kinds,
                at_most=self.at_most,
                once=self.once,
            )
        except NoExamplesError as error:
            self.report(f"note: task {task.name!r}: its metrics are not computed: {error}")
            return []
        for line in lines:
            self.report(f"note: {line}")
        return [opened]

    def _rows(self, task: Task) -> Examples:
        """The held-out rows of a task that has a cache, one example each."""
        (rows,) = mixtures.examples(
            [task],
            _SPLIT,
            converter=unpacked(self.converter),
            seed=EVALUATION_SEED,
            alone=True,
        )
        return rows

    def _of_cache(self, task: Task) -> EvaluatedTask:
        """A task with the examples of its cache, and the text of its targets, decoded from tokens.

        Answers are compared with this text, which is whole where the target of a row is cut.
        """
        decode = decoder(task.vocabulary)
        rows = self._rows(task)
        records = [record for number in range(len(rows)) for record in rows.samples[number]]
        inputs = (record["inputs"].tobytes() for record in records)
        texts = several_targets.texts(inputs, task.objective)
        if len(texts) < len(records):
            self.report(
                f"note: task {task.name!r}: {len(records):,} held-out rows are {len(texts):,} "
                "texts, of some of which several targets are right"
            )
        examples = []
        for numbers in (texts[number] for number in spread(len(texts), self.at_most)):
            (example,) = rows.features(numbers[0])
            targets = [decode(records[number]["targets"].tolist()) for number in numbers]
            examples.append({**example, "targets_pretokenized": several_targets.target(targets)})
        return EvaluatedTask(
            name=task.name,
            split=_SPLIT,
            examples=examples,
            total=len(texts),
            lengths=task.lengths,
            metrics=answers.computable(measured(task.measures, decode), self.kinds),
            decode=decode,
        )

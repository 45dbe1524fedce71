"""The batches of a phase on its devices, for training and evaluation."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.core.abilities import AnswersTasks, can
from t5x_like.core.global_batches import ToDevice
from t5x_like.core.protocols import tasks
from t5x_like.data.streams import stream
from t5x_like.evaluation.evaluator import evaluate, with_row_names
from t5x_like.evaluation.unigram import held_out_baselines
from t5x_like.runs.run import Run
from t5x_like.training import step
from t5x_like.training.checkpointing.ranking import BestMetric
from t5x_like.training.completion import Completion
from t5x_like.training.metrics import TOTALS

if TYPE_CHECKING:
    import numpy as np

    from t5x_like.core.protocols.model import Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseBatches:
    """A `periods.LoopPhase`: global batches of a phase of a run, and the program that reads them.

    Attributes:
      start: the steps of the run before it.
      program: the program for its batches.
      run: the run with the settings of this phase.
      train: the training examples.
      validation: the held-out examples; empty if the run does not evaluate.
      rows_before: the rows of the training examples that earlier phases have read.
      token_bytes: the result of `text_bytes.token_bytes`; None if unknown.
      complete: completes each batch; all phases have the same.
      log_baselines: called after each evaluation with the steps before the phase, and a function
        that computes what the metrics compare with, by their names; None to leave that out.
      task_evaluation: a function from parameters and the metrics so far to the metrics of the
        tasks' authors, and to whether each of these has a value; None if the tasks have none.
    """

    start: int
    program: step.Program
    run: Run
    train: Sequence[stream.Examples]
    validation: Sequence[stream.Examples]
    token_bytes: np.ndarray | None = None
    rows_before: int = 0
    complete: Completion = dataclasses.field(default_factory=Completion)
    task_evaluation: Callable[[Any, Mapping[str, float]], tuple[Mapping, bool]] | None = None
    log_baselines: Callable[[int, Callable[[], Mapping[str, float]]], None] | None = None

    def shares(self) -> list[tuple[stream.Examples, float]]:
        """Each training text and its share of the rows."""
        whole = sum(examples.task.weight for examples in self.train)
        return [(examples, examples.task.weight / whole) for examples in self.train]

    def evaluated(self) -> list[str]:
        """How many of its held-out rows each text is evaluated on."""
        lines, options = [], self.run.options
        for text in self.validation:
            chosen = stream.evaluated_rows(
                text, batch_size=options.batch_size, max_batches=options.eval_batches
            )
            read = f"all {len(text):,}"
            if len(chosen) < len(text):
                read = f"{len(chosen):,} of {len(text):,}, spread evenly: EVAL_BATCHES x BATCH_SIZE"
            lines.append(f"{text.task.name} ({read})")
        return lines

    def check(self) -> None:
        """Traces a step on such batches, so that errors of the model come before training.

        Raises:
          ValueError: the model cannot read the batches: rows are longer than its positions, say;
            or rows of like length cannot share batches.
        """
        if self.run.options.group_by_length:
            stream.check_by_length(self.train)
        if self.rows_before:
            stream.check_continues(self.train, by_length=self.run.options.group_by_length)
        if self.run.completer is None:
            self.program.trace(self.train[0][0])

    def batches(self, start_step: int) -> Iterator[Batch]:
        """Training batches, from a step of the phase on."""
        options, to_device = self.run.options, self._to_device
        rows = stream.train_stream(
            self.train,
            batch_size=options.batch_size,
            rows=to_device.rows,
            start_step=start_step,
            num_workers=options.data_workers,
            by_length=options.group_by_length,
            rows_before=self.rows_before,
        )
        return map(self.complete, map(to_device, rows))

    @property
    def evaluate(self) -> Callable[[Any], Mapping[str, float]] | None:
        """A function that evaluates parameters on held-out text; None without such text."""
        return self._held_out_metrics if self.validation else None

    def _held_out_metrics(self, params: Any) -> dict[str, float]:
        """{"<task>/<metric>": value} on batches of each validation split.

        Raises:
          ValueError: none of them is BEST_METRIC.
        """
        values_by_name: dict[str, float] = {}
        of_model: dict[str, dict[str, float]] = {}
        options, to_device = self.run.options, self._to_device
        for examples in self.validation:
            rows = stream.eval_stream(
                examples,
                batch_size=options.batch_size,
                rows=to_device.rows,
                max_batches=options.eval_batches,
            )
            metrics = evaluate(
                self.program.evaluation(),
                params,
                map(self.complete, map(to_device, rows)),
                token_bytes=self.token_bytes,
            )
            if can(self.run.abstract_model, AnswersTasks):
                metrics = tasks.own(metrics, examples.task.name)
            of_model[examples.task.name] = metrics
            metrics = with_row_names(metrics, examples.task.objective)
            for name in metrics.keys() - set(TOTALS):
                values_by_name[f"{examples.task.name}/{name}"] = metrics[name]
        if self.log_baselines is not None:
            compared = functools.partial(self._baselines, of_model)
            self.log_baselines(self.start, compared)
        whole = True
        if self.task_evaluation is not None:
            values, whole = self.task_evaluation(params, values_by_name)
            values_by_name |= values
        if whole:
            BestMetric.parse(options.best_metric).check(values_by_name)
        return dict(sorted(values_by_name.items()))

    def _baselines(self, of_model: Mapping[str, dict[str, float]]) -> dict[str, float]:
        return held_out_baselines(
            self.validation,
            [examples.task for examples in (*self.train, *self.validation)],
            of_model=of_model,
            batch_size=self.run.options.batch_size,
            batches=self.run.options.eval_batches,
            token_bytes=self.token_bytes,
        )

    @property
    def _to_device(self) -> ToDevice:
        return ToDevice(self.run.layout, self.run.options.batch_size)

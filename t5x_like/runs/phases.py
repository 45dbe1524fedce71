"""The phases of a run: the data of each, and what must not change when the run is resumed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import nnx

from t5x_like.core import global_batches
from t5x_like.core.abilities import AnswersTasks, can
from t5x_like.core.buckets import staging
from t5x_like.core.spelling import differences
from t5x_like.data.rows import task_rows
from t5x_like.data.samples.randomness import EVALUATION_SEED, phase_seed
from t5x_like.data.streams import mixtures, stream
from t5x_like.evaluation.tasks import answers
from t5x_like.evaluation.tasks.in_training import Measuring, TaskEvaluation
from t5x_like.evaluation.text_bytes import token_bytes
from t5x_like.runs.batches import PhaseBatches
from t5x_like.runs.checks import preflight
from t5x_like.runs.memory.microbatches import with_microbatches
from t5x_like.runs.run import Run
from t5x_like.training import batch_growth
from t5x_like.training.checkpointing.bases import Base, still
from t5x_like.training.hosts import multihost
from t5x_like.training.hosts.agreement import agree
from t5x_like.training.optimization.parameter_paths import by_path

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Vocabulary
    from t5x_like.data.task import Task
    from t5x_like.training.logs.run_log import RunLog
    from t5x_like.training.step import Program


@dataclasses.dataclass(frozen=True)
class RunPhase:
    """Phase `number` of a run, after `start` steps; `run` has the settings of the phase.

    Its rows are those of phase `origin` (None: its own), after the first `rows_before` of them.
    """

    start: int
    run: Run
    number: int
    origin: int | None = None
    rows_before: int = 0

    @property
    def seed(self) -> int:
        number = self.number if self.origin is None else self.origin
        return phase_seed(self.run.options.seed, number)

    def check(self) -> None:
        """Raises ValueError if its batches cannot be made, as far as this is known without data."""
        run = self.run
        global_batches.check_batch(
            run.layout, run.options.batch_size, microbatches=run.options.microbatches or 1
        )
        data = run.data.with_lengths()
        preflight.parts_complete(run)
        preflight.kinds_fit(run, data.task_objectives())
        preflight.lengths_given(run.feature_converter, data.lengths or {})
        preflight.packed(run, data.task_objectives())
        named = run.phases[self.number].objective if run.phases else None
        wanted = dataclasses.replace(data, objective=named).chosen_objective
        if named is not None and any(objective != wanted for objective in data.task_objectives()):
            raise ValueError(
                f"PHASES: phase {self.number + 1} has an objective, but the task "
                f"{run.data.mixture_or_task_name!r} has one of its own: name the corpus alone"
            )

    @property
    def label(self) -> str:
        """The phase's part in the names of its settings; the first phase has none there."""
        return f"phase_{self.number + 1}"

    def check_program(self, program: Program) -> None:
        """Traces a step on rows like those of its tasks, before any text is read.

        Raises:
          ValueError: the model, the optimizer or the objective does not accept the rows.
        """
        if self.run.completer is None:
            data = self.run.data.with_lengths()
            for objective in data.task_objectives():
                preflight.step_works(self.run, program, objective, data.lengths or {})

    def check_vocabulary(self, ids: int, vocabulary: Vocabulary | None) -> None:
        """Raises ValueError if the model or its completer cannot read so many ids."""
        pad = None if vocabulary is None else vocabulary.token_ids.pad
        preflight.vocabulary_fits(self.run.abstract_model, ids, pad)
        if vocabulary is not None and self.run.completer is not None:
            self.run.completer.check(vocabulary)

    def open_data(
        self,
        same: Callable[[Mapping[str, Any]], None],
        usable: Callable[[Vocabulary], None],
    ) -> tuple[Task, ...]:
        """Its tasks. Text that the run cannot use is an error before any of it is tokenised.

        Args:
          same: compares part of the run's identity with that of the run it would resume.
          usable: compares the vocabulary with that of the parameters the run starts from.
        """

        def check(ids: int, vocabulary: Vocabulary | None) -> None:
            if vocabulary is not None:
                facts = f"{ids:,} ids, fingerprint {vocabulary.fingerprint[:12]}"
                agree("the vocabulary", [facts])
            self.check_vocabulary(ids, vocabulary)
            if vocabulary is not None:
                usable(vocabulary)
            known = {} if vocabulary is None else {"vocabulary": vocabulary.fingerprint}
            same({**self._with_phase(self._settings()), **known})

        return self.run.data.open(once=_once, check=check)

    def batches(self, tasks: Sequence[Task], program: Program) -> PhaseBatches:
        """Its batches. If samples have no plan yet, the first process plans them for all."""
        train, validation = multihost.first_process_then_others(
            f"plans of samples {self.number}", lambda: self._examples(tasks)
        )
        return PhaseBatches(
            start=self.start,
            program=program,
            run=self.run,
            train=train,
            validation=validation,
            token_bytes=token_bytes(tasks[0].vocabulary),
            rows_before=self.rows_before,
        )

    def task_evaluation(
        self, tasks: Sequence[Task], program: Program, report: Callable[[str], None]
    ) -> TaskEvaluation | None:
        """The metrics of its tasks' authors; None if there are none. `report` shows lines."""
        run, options = self.run, self.run.options
        at_most = options.eval_batches * options.batch_size
        if not at_most or not options.eval_period:
            return None
        opened = Measuring(
            data=run.data,
            converter=run.feature_converter,
            kinds=answers.kinds(run.abstract_model, run.feature_converter),
            at_most=at_most,
            report=report,
            once=_once,
        ).opened(tasks)
        if not opened:
            return None
        answerer = functools.partial(
            answers.ModelAnswers,
            layout=run.layout,
            converter=task_rows.apart(run.feature_converter),
            batch_size=options.batch_size,
            ids=tasks[0].token_ids,
            lengths=tasks[0].lengths,
        )
        features = {task.name: task.features for task in tasks}

        def of_task(params: Any, name: str) -> answers.ModelAnswers:
            model = nnx.merge(program.graphdef, params)
            model = model.of_task(name) if can(model, AnswersTasks) else model
            return answerer(model=model, features=features[name])

        return TaskEvaluation(opened, of_task, report)

    def _examples(
        self, tasks: Sequence[Task]
    ) -> tuple[Sequence[stream.Examples], Sequence[stream.Examples]]:
        """The training examples, and the held-out ones: empty if the run does not evaluate."""
        converter, rows = self.run.feature_converter, self.run.options.batch_size
        options: Any = {"converter": converter, "seed": self.seed, "rows": rows}
        train = mixtures.examples(tasks, "train", **options, later=self.start > 0)
        if not train:
            names = ", ".join(task.name for task in tasks)
            raise ValueError(f"nothing to train on: {names} has no examples in a split 'train'")
        preflight.examples_read(converter, train)
        if not self.run.options.eval_period:
            return train, ()
        try:
            return train, mixtures.examples(
                tasks,
                "validation",
                converter=converter,
                seed=EVALUATION_SEED,
                rows=rows,
                alone=True,
            )
        except ValueError as error:
            # The training split has already shown any error of the task or of its lengths.
            raise ValueError(
                f"the validation split cannot be evaluated in batches of {rows} rows: {error}. "
                "Or hold more text out, or train without evaluation: EVAL_PERIOD=0"
            ) from error

    def identity(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """The values that decide which rows each step reads and what their ids mean."""
        facts = self._with_phase({**self._settings(), **mixtures.identity(tasks)})
        return {**facts, "vocabulary": tasks[0].vocabulary.fingerprint}

    def _settings(self) -> dict[str, Any]:
        run = self.run
        settings = {
            "seed": run.options.seed,
            "batch_size": run.options.batch_size,
            "data.converter": repr(run.feature_converter),
        }
        if run.completer is not None:
            settings["data.completer"] = run.completer.identity()
        settings |= {f"adapt.{name}": value for name, value in run.adapt_settings.items()}
        if self.rows_before:
            settings["data.rows_before"] = self.rows_before
        return settings | ({"data.start": self.start} if self.number else {})

    def _with_phase(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values with the phase in their names: `data.lengths` is `data.phase_2.lengths`."""
        if not self.number:
            return dict(values)
        parts = {name: name.partition(".") for name in values}
        return {
            f"{kind}.{self.label}{dot}{rest}": values[name]
            for name, (kind, dot, rest) in parts.items()
        }


def run_phases(run: Run) -> list[RunPhase]:
    """The phases of a run, checked (`RunPhase.check`), each with its number of microbatches."""
    phases = [
        RunPhase(start, part, n, *batch_growth.rows_before(run.phases, n, run.options.batch_size))
        for n, (start, part) in enumerate(run.in_phases())
    ]
    for phase in phases:
        phase.check()
    _same_parameters(phases)
    runs = with_microbatches([checked.run for checked in phases])
    return [
        dataclasses.replace(checked, run=run) for checked, run in zip(phases, runs, strict=True)
    ]


def base_checkpoints(
    run: Run,
    programs: Sequence[Program],
    vocabulary: Vocabulary,
    *,
    saved: Sequence[Base] | None,
    log: RunLog,
) -> Sequence[Base]:
    """Where the parameters are that no phase trains and that are as the run took them.

    Those of a run that is resumed are where its checkpoint says: `init_from` may have newer steps.

    Args:
      run: the run.
      programs: those of all phases that it reaches.
      vocabulary: the vocabulary of the run.
      saved: the bases of the checkpoint that it resumes; None if there is none.
      log: says what is left out.

    Raises:
      ValueError: CHECKPOINT_FROZEN is False, but the run starts from no other model.
      CheckpointError: the other model cannot be read.
    """
    if run.options.checkpoint_frozen:
        return []
    if run.init_from is None:
        raise ValueError(
            "CHECKPOINT_FROZEN is False, but there is no INIT_FROM: parameters that do not train "
            "can be left out of checkpoints only where another one has them"
        )
    masks = [by_path(program.trained) for program in programs]
    frozen = {path for path in masks[0] if not any(np.any(mask[path]) for mask in masks)}
    if saved is None:
        bases = run.init_from.bases(frozen, model=run.abstract_model, vocabulary=vocabulary)
    else:
        bases = still(saved, frozen)
    count = sum(len(base.parameters) for base in bases)
    places = " and ".join(base.step for base in bases) or "any other"
    log.message(f"Checkpoints leave {count} of {len(masks[0])} parameters to {places}.")
    return bases


def _same_parameters(phases: Sequence[RunPhase]) -> None:
    """Raises ValueError if the model of a phase has other parameters than that of the first."""

    def shapes(phase: RunPhase) -> dict[str, Any]:
        params = nnx.to_pure_dict(nnx.state(phase.run.abstract_model, nnx.Param))
        return {path: leaf.shape for path, leaf in by_path(params).items()}

    for phase in phases:
        if phase.run.model is phases[0].run.model:
            continue
        text = "{name} is {second}, not {first}"
        if different := differences(shapes(phases[0]), shapes(phase), text):
            raise ValueError(
                f"PHASES: the model of phase {phase.number + 1} has other parameters than that of "
                f"phase 1: {different}. A phase may change only settings that "
                "leave the parameters as they are"
            )


def _once(name: str, path: Path, exists: Callable[[], bool], make: Callable[[], None]) -> None:
    """Has process 0 make a thing in a directory that all share; the others wait at a barrier.

    Raises:
      ProcessError: in all processes, if the names differ, as those of other texts do.
    """
    # The name has a fingerprint of the text: each process would wait at a barrier of its own.
    agree("the text (or its vocabulary)", [name])
    if multihost.everywhere(f"{name}: whether it is there", exists()).all():
        return
    if staging.address(path) is None:
        multihost.check_shared(path.parent)
    first = jax.process_index() == 0
    multihost.first_process_then_others(name, make if first else lambda: None)

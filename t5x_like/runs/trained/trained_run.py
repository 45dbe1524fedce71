"""A trained model, from the directory of its run."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from flax import nnx

from t5x_like.config import gin_config
from t5x_like.core.buckets import storage
from t5x_like.core.global_batches import ToDevice
from t5x_like.core.protocols.completers import Kept
from t5x_like.core.protocols.data import FeatureSpec, Vocabulary
from t5x_like.data.vocabulary_choice import KnownVocabulary
from t5x_like.evaluation.tasks import answers
from t5x_like.runs import run_directory
from t5x_like.runs.checks import outside_paths
from t5x_like.runs.program import build_program
from t5x_like.runs.run import Run
from t5x_like.runs.settings import gin_run
from t5x_like.runs.trained import shared_parameters
from t5x_like.runs.trained.shared_parameters import Shared
from t5x_like.training.checkpointing import ranking
from t5x_like.training.checkpointing.checkpoint_items import RestoredState
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.step import Program

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch
    from t5x_like.data.dataset import Data
    from t5x_like.training.checkpointing.ranking import WantedStep


_ROWS = 32
"""The least rows of a batch if the user gives no number."""


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """The parts of a run and the parameters of one of its checkpoints.

    `rows` is the number of rows in a batch that its program evaluates. `kept` is what the run's
    completer keeps after the step. `labels` has the names of the classes in each column of labels,
    `metrics` the values of the evaluation that was saved with the step.
    """

    run: Run
    program: Program
    params: Any
    vocabulary: Vocabulary
    step: int
    rows: int
    kept: Kept = dataclasses.field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def model(self) -> Any:
        """The model as a module that holds its parameters."""
        return nnx.merge(self.program.graphdef, self.params)

    @property
    def kinds(self) -> set[str]:
        """The fields of `Answers` that its model gives."""
        return answers.kinds(self.run.abstract_model, self.run.feature_converter)

    @property
    def no_answer_threshold(self) -> float | None:
        """The score of no answer, less that of the best, above which a question has none.

        It is the one that was best for F1 in the evaluation; None where all questions had answers.
        """
        return self._tuned("best_f1_thresh")

    @property
    def class_threshold(self) -> float | None:
        """The least probability of a class that holds, of several, which was best for micro F1."""
        return self._tuned("best_threshold")

    @property
    def temperature(self) -> float | None:
        """The temperature that calibrates the probabilities of classes (`calibration.scores`)."""
        return self._tuned("best_temperature")

    def _tuned(self, metric: str) -> float | None:
        tuned = (x for name, x in self.metrics.items() if name.endswith(f"/{metric}"))
        return next(tuned, None)

    def answerer(
        self,
        lengths: Mapping[str, int],
        *,
        batch_size: int,
        features: Mapping[str, FeatureSpec] | None = None,
    ) -> answers.ModelAnswers:
        """Answers examples whose features have at most these lengths, or are `features`."""
        of_lengths = {name: FeatureSpec(length) for name, length in lengths.items()}
        return answers.ModelAnswers(
            model=self.model,
            layout=self.run.layout,
            converter=self.run.feature_converter,
            batch_size=batch_size,
            ids=self.vocabulary.token_ids,
            lengths=lengths,
            features=features or of_lengths,
        )

    def begun_phases(self) -> list[Run]:
        """The run with the settings of each phase, up to that of the checkpoint's last step."""
        return _begun_phases(self.run, self.step)

    def in_phase(self) -> TrainedRun:
        """The same with the settings of the phase of the checkpoint's last step."""
        return dataclasses.replace(self, run=self.begun_phases()[-1])


def _begun_phases(run: Run, step: int) -> list[Run]:
    return [part for start, part in run.in_phases() if start <= max(step - 1, 0)]


def load(
    model_dir: str,
    *,
    step: WantedStep = None,
    bindings: Sequence[str] = (),
    rows: int | None = None,
    modules: Collection[str] = (),
    allow_paths: bool = False,
    shared: Shared | None = None,
) -> TrainedRun:
    """A run with the parameters of a checkpoint, averaged ones if the run keeps them.

    Args:
      model_dir: the directory of the run.
      step: the step of the checkpoint, or "best"; the newest by default.
      bindings: settings that override the run's saved configuration.
      rows: the rows of the batches that its program will evaluate; None for 32, or the next larger
        number that the mesh divides.
      modules: modules that its configuration may name (`run_directory.load_config`). The module
        that registers its tasks is imported only if it is one of them.
      allow_paths: whether text and a teacher outside of the directory may be read though this
        account has not trained with them (`outside_paths`).
      shared: parameters of its base that are in memory (`shared_parameters`).

    Raises:
      ValueError, OSError: it is not the directory of a run, or has no such checkpoint; or it shares
        no parameter.
    """
    directory = storage.path(model_dir)
    with gin_config.temporary_configuration():
        run_directory.load_config(directory, modules)
        gin_config.bind(bindings)
        with run_directory.named(model_dir):
            run = gin_run.without_gin(gin_run.build())
    # The caller chooses the rows: its devices may not be those that trained the model.
    shards = run.layout.batch_shards
    rows = -(-_ROWS // shards) * shards if rows is None else rows
    options = dataclasses.replace(run.options, batch_size=rows, microbatches=1)
    program = build_program(run.with_parts(options=options))
    checkpoints = Checkpoints(
        run_directory.checkpoints(directory), best_metric=run.options.best_metric
    )
    restored = _restored(checkpoints, program, step=step, shared=shared, directory=model_dir)
    last = _begun_phases(run, restored.step)[-1].with_parts(options=options)
    if last.model is not run.model:
        program = build_program(last)
    vocabulary = run_directory.read_vocabulary(directory)
    run = run.with_parts(data=_data(run, vocabulary, modules), init_from=None)
    run = outside_paths.withhold(run, model_dir, bindings=bindings, allow=allow_paths, report=_note)
    return TrainedRun(
        *(run, program, restored.state, vocabulary, restored.step, rows),
        kept=checkpoints.restore_kept(restored.step, program.layout.replicated),
        labels=run_directory.read_labels(directory),
        metrics=ranking.saved_metrics(checkpoints.directory / str(restored.step)),
    )


def _restored(
    checkpoints: Checkpoints,
    program: Program,
    *,
    step: WantedStep,
    shared: Shared | None,
    directory: str,
) -> RestoredState:
    """The parameters of a step, of which some may be in memory."""
    wanted = program.abstract_state.params
    if shared is None:
        return checkpoints.restore_params(wanted, step=step)
    restored = checkpoints.open_params(wanted, step=step)
    params = shared_parameters.read(restored.state, shared, directory=directory)
    return dataclasses.replace(restored, state=params)


def _data(run: Run, vocabulary: Vocabulary, modules: Collection[str]) -> Data:
    """The run's data with the vocabulary of its directory, and its module if that is allowed."""
    registers = run.data.mixture_or_task_module
    if registers is not None and registers not in modules:
        _note(
            f"note: module {registers!r} registered the run's task. Opening a directory runs no "
            f"code that it names; if you trust it, add --module {registers}"
        )
        registers = None
    # The vocabulary file that the configuration names may no longer exist.
    return dataclasses.replace(
        run.data, vocabulary=KnownVocabulary(vocabulary), mixture_or_task_module=registers
    )


def _note(line: str) -> None:
    print(line, file=sys.stderr)


def batch_to_device(trained: TrainedRun, batch: Mapping[str, np.ndarray]) -> Batch:
    """A NumPy batch on the run's mesh."""
    rows = len(next(iter(batch.values())))
    return ToDevice(trained.run.layout, rows)(batch)

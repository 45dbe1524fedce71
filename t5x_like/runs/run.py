"""A pretraining run as gin describes it: a task, a model, an optimizer and a mesh."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flax import nnx

from t5x_like.training.periods import Periods
from t5x_like.training.step import StepOptions

if TYPE_CHECKING:
    import optax

    from t5x_like.core.partitioning import Layout
    from t5x_like.core.protocols import BatchCompleter, FeatureConverter, Model, Objective
    from t5x_like.data.dataset import Data
    from t5x_like.runs.init_from import InitFrom


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Periods, StepOptions):
    """How long, how often, how much. Steps count optimizer updates.

    Those of `Periods` and `StepOptions` go whole to the loop and to the step.

    Attributes:
      seed: of parameters, data order, noise and dropout.
      eval_batches: batches of an evaluation at most.
      checkpoints_kept: newest checkpoints kept, besides the best by held-out loss.
      data_workers: processes that make batches; 0 makes them in threads.
    """

    seed: int = 0
    eval_batches: int = 20
    checkpoints_kept: int = 3
    data_workers: int = 0

    def __post_init__(self) -> None:
        least = {"train_steps": 1, "batch_size": 1, "microbatches": 1, "checkpoints_kept": 1}
        whole = ("eval_period", "eval_batches", "checkpoint_period", "log_period", "data_workers")
        for name, smallest in {**dict.fromkeys((*whole, "seed"), 0), **least}.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < smallest:
                raise ValueError(
                    f"{name.upper()} must be a whole number of at least {smallest}, not {value!r}"
                )
        if isinstance(self.frozen, str) or not all(isinstance(one, str) for one in self.frozen):
            raise ValueError(f"FROZEN must be a list of patterns, not {self.frozen!r}")
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise ValueError(
                f"LAYER_DECAY must be None, or above 0 and at most 1, not {self.layer_decay!r}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a run whose batches differ from those of its other parts.

    Attributes:
      steps: how many it takes; None for the last phase, which takes the rest of them.
      lengths: tokens of each task feature; None for those of the run, as with what follows.
      batch_size: rows of the global batch.
      objective: for a corpus that is named without one: a preset's name, or an objective.
    """

    steps: int | None = None
    lengths: Mapping[str, int] | None = None
    batch_size: int | None = None
    objective: Objective | str | None = None

    def of(self, run: Run) -> Run:
        """`run` as it is in this phase."""
        data = {"lengths": self.lengths, "objective": self.objective}
        options = {"batch_size": self.batch_size}
        return dataclasses.replace(
            run,
            data=dataclasses.replace(run.data, **_set(data)),
            options=dataclasses.replace(run.options, **_set(options)),
        )


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run: everything `t5x_like train` needs, each part named in gin.

    Attributes:
      model_dir: where checkpoints, logs and the configuration go.
      model: builds the model from `rngs`.
      data: what is read.
      feature_converter: from an example's features to the model's.
      optimizer: an optax transformation; it sees one layer at a time. None where a run made in
        Python is opened again: it does not train.
      layout: the mesh and the rules of its axes.
      options: steps, batch size, periods, seed.
      phases: parts of the run with batches of their own, in order; none: it is the same throughout.
      init_from: where the first parameters come from, in place of being drawn.
      completer: adds to each batch, such as what a teacher says of it.
    """

    model_dir: str | None
    model: Callable[..., Model]
    data: Data
    feature_converter: FeatureConverter
    optimizer: optax.GradientTransformation | None
    layout: Layout
    options: Options
    phases: Sequence[Phase] = ()
    init_from: InitFrom | None = None
    completer: BatchCompleter | None = None

    def __post_init__(self) -> None:
        parts = [getattr(self.optimizer, name, None) for name in ("init", "update")]
        if self.optimizer is not None and not all(map(callable, parts)):
            raise ValueError(
                "OPTIMIZER must be an optimizer, such as @optimizers.adamw() in a gin file, not "
                f"{self.optimizer!r}"
            )
        *earlier, last = self.phases or (Phase(),)
        if last.steps is not None or not all(
            isinstance(phase.steps, int) and phase.steps > 0 for phase in earlier
        ):
            raise ValueError(
                "PHASES: each phase needs a number of steps, but the last, which takes what is "
                f"left of TRAIN_STEPS: {[phase.steps for phase in self.phases]}"
            )

    @functools.cached_property
    def abstract_model(self) -> Model:
        """The model, its parameters shapes and dtypes."""
        made: Model = nnx.eval_shape(lambda: self.model(rngs=nnx.Rngs(0)))
        return made

    def in_phases(self) -> list[tuple[int, Run]]:
        """(steps before it, the run as it is in it) of each phase."""
        if not self.phases:
            return [(0, self)]
        lengths = (phase.steps or 0 for phase in self.phases[:-1])
        starts = itertools.accumulate(lengths, initial=0)
        return [(start, phase.of(self)) for start, phase in zip(starts, self.phases, strict=True)]

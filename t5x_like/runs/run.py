"""A pretraining run as gin describes it: a task, a model, an optimizer and a mesh."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flax import nnx

from t5x_like.runs import model_config
from t5x_like.runs.init_from import InitFrom
from t5x_like.training import batch_growth
from t5x_like.training.checkpointing.ranking import BestMetric
from t5x_like.training.compilation import RANDOM_NUMBERS
from t5x_like.training.health.bad_steps import WAYS
from t5x_like.training.health.safeguards import Safeguards
from t5x_like.training.periods import Periods
from t5x_like.training.step import StepOptions

if TYPE_CHECKING:
    import optax

    from t5x_like.core.partitioning import Layout
    from t5x_like.core.protocols.completers import BatchCompleter
    from t5x_like.core.protocols.data import FeatureConverter, Objective
    from t5x_like.core.protocols.model import Model
    from t5x_like.data.dataset import Data


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Periods, StepOptions, Safeguards):
    """The numbers of a run: steps, periods, sizes, seed. A step is one optimizer update.

    The loop reads them as `Periods` and `Safeguards`, the step as `StepOptions`.

    Attributes:
      seed: the seed of parameters, data order, noise and dropout.
      eval_batches: the most batches of an evaluation.
      checkpoints_kept: the number of newest checkpoints to keep, besides the best.
      checkpoint_frozen: whether checkpoints have the parameters that never train, too. If not, they
        name the checkpoint of `init_from` that has them, by its place and its digest, and cannot be
        opened without it.
      best_metric: the metric by which a checkpoint is best, as `BestMetric.parse` reads it.
      group_by_length: whether rows of like length share batches, which are as long as their longest
        row; for labelled texts.
      data_workers: the number of processes that make batches; 0 makes them in threads.
      batch_warmup_tokens: the tokens (`training.batch_growth`) in which batches grow; None for
        batches of one size. A `Run` makes phases of it.
      batch_warmup_rows: the rows by which they grow; None for those of a microbatch.
    """

    seed: int = 0
    eval_batches: int = 20
    checkpoints_kept: int = 3
    checkpoint_frozen: bool = True
    best_metric: str = "loss"
    group_by_length: bool = False
    data_workers: int = 0
    batch_warmup_tokens: int | None = None
    batch_warmup_rows: int | None = None

    def __post_init__(self) -> None:
        least = {"train_steps": 1, "batch_size": 1, "checkpoints_kept": 1}
        optional = ("microbatches", "batch_warmup_tokens", "batch_warmup_rows")
        least |= {name: 1 for name in optional if getattr(self, name) is not None}
        periods = ("eval_period", "checkpoint_period", "log_period")
        whole = (*periods, "eval_batches", "early_stopping", "data_workers", "seed")
        BestMetric.parse(self.best_metric)
        for name, smallest in {**dict.fromkeys(whole, 0), **least}.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < smallest:
                raise ValueError(
                    f"{name.upper()} must be a whole number of at least {smallest}, not {value!r}"
                )
        self._check_average()
        self.check_safeguards()
        if self.bad_numbers not in WAYS:
            raise ValueError(
                f"BAD_NUMBERS must be one of {', '.join(WAYS)}, not {self.bad_numbers!r}"
            )
        if self.loss_spike is not None and self.bad_numbers == "skip":
            raise ValueError(
                "LOSS_SPIKE is for BAD_NUMBERS 'stop' and 'roll_back': a step is skipped only if "
                "its numbers are not finite"
            )
        if self.random_numbers not in (None, *RANDOM_NUMBERS):
            raise ValueError(
                f"RANDOM_NUMBERS must be None or one of {', '.join(RANDOM_NUMBERS)}, not "
                f"{self.random_numbers!r}"
            )
        if not isinstance(self.compiler_options, Mapping):
            raise ValueError(
                "COMPILER_OPTIONS must be {'name of an option of XLA': value}, not "
                f"{self.compiler_options!r}"
            )
        if isinstance(self.frozen, str) or not all(
            isinstance(pattern, str) for pattern in self.frozen
        ):
            raise ValueError(f"FROZEN must be a list of patterns, not {self.frozen!r}")
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise ValueError(
                f"LAYER_DECAY must be None, or above 0 and at most 1, not {self.layer_decay!r}"
            )

    def _check_average(self) -> None:
        """Raises ValueError where `average_from` leaves no step, or there are two averages."""
        start = self.average_from
        if start is None:
            return
        if not isinstance(start, int) or not 0 <= start < self.train_steps:
            raise ValueError(
                f"AVERAGE_FROM must be a step of the {self.train_steps} of the run, from 0, not "
                f"{start!r}"
            )
        if self.ema_decay is not None:
            raise ValueError("EMA_DECAY and AVERAGE_FROM are two averages: set one of them")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a run whose batches, or what trains on them, differ from those of its other parts.

    Attributes:
      steps: the number of its steps; None for the last phase, which takes the rest.
      tokens: in place of its steps, the tokens that it reads at least (`training.batch_growth`).
      lengths: the tokens of each task feature; here and below, None for the value of the run.
      batch_size: the rows of the global batch.
      microbatches: the number of parts of a batch.
      continues: whether it reads the rows that follow those of the phase before, which has the same
        texts, lengths and objective, instead of drawing rows again.
      objective: a preset's name or an objective, for a corpus that is named without one.
      optimizer: an optax transformation. Its schedules count the steps of the run. It goes on with
        the state of the one before where that fits (`histories.continued`).
      frozen: what does not train, as `FROZEN`; () for nothing.
      layer_decay: the factor of the learning rate from layer to layer, as `LAYER_DECAY`; 1.0 for
        equal rates.
      model: fields of the model's configuration, which change no parameter: {"dropout_rate": 0.0}.
    """

    steps: int | None = None
    tokens: int | None = None
    lengths: Mapping[str, int] | None = None
    batch_size: int | None = None
    microbatches: int | None = None
    continues: bool = False
    objective: Objective | str | None = None
    optimizer: optax.GradientTransformation | None = None
    frozen: Sequence[str] | None = None
    layer_decay: float | None = None
    model: Mapping[str, Any] | None = None

    def of(self, run: Run) -> Run:
        """`run` with the settings of this phase.

        Raises:
          ValueError: an option is out of range, or the model has no such field.
        """
        data = {"lengths": self.lengths, "objective": self.objective}
        names = ("batch_size", "microbatches", "frozen", "layer_decay")
        options = {name: getattr(self, name) for name in names}
        parts: dict[str, Any] = {"optimizer": self.optimizer}
        if self.model is not None:
            parts["model"] = model_config.with_fields(run.model, self.model)
        return run.with_parts(
            data=dataclasses.replace(run.data, **_without_none(data)),
            options=dataclasses.replace(run.options, **_without_none(options)),
            **_without_none(parts),
        )


def phase_starts(phases: Sequence[Phase]) -> list[int]:
    """The steps of a run before each of its phases."""
    lengths = [phase.steps or 0 for phase in phases[:-1]]
    return [*itertools.accumulate(lengths, initial=0)] if phases else []


def _check_continues(before: Phase | None, phase: Phase) -> None:
    """Raises ValueError where a phase has other rows than the one that it continues."""
    if before is None:
        raise ValueError("PHASES: the first phase has no rows to continue")
    for name in ("lengths", "objective"):
        if getattr(before, name) != getattr(phase, name):
            raise ValueError(
                f"PHASES: a phase that continues the rows of the one before has its {name}, but "
                f"here they are {getattr(before, name)!r} and {getattr(phase, name)!r}"
            )


def adapted(model: Model, adapt: Callable[..., Model] | None, rngs: nnx.Rngs) -> Model:
    """The model that `Run.adapt` makes of a model.

    Raises:
      ValueError: it fails, or gives no model.
    """
    if adapt is None:
        return model
    try:
        adapted_model = adapt(model, rngs=rngs)
    except (TypeError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"ADAPT cannot adapt {type(model).__name__}: {reason}") from error
    if not isinstance(adapted_model, nnx.Module):
        raise ValueError(f"ADAPT must return the adapted model, not {adapted_model!r}")
    return adapted_model


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


_PARTS = {
    "model": ("MODEL", "__call__", "the class of a model, such as @t5.T5"),
    "feature_converter": (
        *("FEATURE_CONVERTER", "kind"),
        "a feature converter, such as @feature_converters.Encoder()",
    ),
    "layout": ("LAYOUT", "mesh", "a layout, such as @partitioning.make_layout()"),
    "init_from": ("INIT_FROM", "directory", "None, a directory, or @init_from.InitFrom()"),
    "adapt": ("ADAPT", "__call__", "None, or a function of a model, such as @my_module.adapt"),
    "completer": ("COMPLETER", "check_model", "None, or a completer, such as @teacher.Teacher()"),
}
"""The macros of parts of a run, an attribute that each part has, and what the part is."""
_OPTIONAL = ("init_from", "completer", "adapt")
_PLAIN = bool | int | float | str | list | tuple | Mapping


def _plain(value: Any) -> Any:
    """A setting as metadata says it: a number or a text as it is, others as JSON."""
    return json.dumps(value, default=repr) if isinstance(value, list | tuple | Mapping) else value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run: everything `t5x_like train` needs, each part named in gin.

    Attributes:
      model_dir: the directory of the checkpoints, the logs and the configuration.
      model: builds the model from `rngs`.
      data: the data that it reads.
      feature_converter: converts an example's features to the model's.
      optimizer: an optax transformation; it sees one layer at a time. None if a run made in Python
        is opened again: it does not train.
      layout: the mesh and the rules of its axes.
      options: steps, batch size, periods, seed.
      phases: parts of the run with settings of their own, in order; empty if all steps are alike.
      init_from: where the first parameters come from; None initialises them. A directory gives the
        sizes of the model as well.
      add_tokens: a file of tokens, one a line, that the vocabulary of `init_from` gets as new ids.
      grow: whether `init_from` is a smaller model (`InitFrom.grow`).
      exchange_vocabulary: whether `init_from` has another vocabulary (`InitFrom.exchange`).
      completer: adds to each batch, for example the outputs of a teacher.
      adapt: called with the model and `rngs=`; gives the model that trains, which it may make of
        the other one: with adapters, another head, fewer layers. None leaves it as it is.
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
    add_tokens: str | None = None
    exchange_vocabulary: bool = False
    grow: bool = False
    completer: BatchCompleter | None = None
    adapt: Callable[..., Model] | None = None

    def __post_init__(self) -> None:
        start: object = self.init_from
        if isinstance(start, str):
            object.__setattr__(self, "init_from", InitFrom(directory=start, model=not self.grow))
        said = {"grow": self.grow, "exchange": self.exchange_vocabulary}
        if self.init_from is not None and any(said.values()):
            changes: dict[str, Any] = {name: True for name, wanted in said.items() if wanted}
            object.__setattr__(self, "init_from", dataclasses.replace(self.init_from, **changes))
        for name, (macro, needed, example) in _PARTS.items():
            part = getattr(self, name)
            if not (part is None and name in _OPTIONAL) and not hasattr(part, needed):
                raise ValueError(f"{macro} must be {example} in a gin file, not {part!r}")
        parts = [getattr(self.optimizer, name, None) for name in ("init", "update")]
        if self.optimizer is not None and not all(map(callable, parts)):
            raise ValueError(
                "OPTIMIZER must be an optimizer, such as @optimizers.adamw() in a gin file, not "
                f"{self.optimizer!r}"
            )
        if not isinstance(self.phases, list | tuple) or not all(
            isinstance(phase, Phase) for phase in self.phases
        ):
            raise ValueError(f"PHASES must be a list of @run.Phase(), not {self.phases!r}")
        self._count_steps()
        *earlier, last = self.phases or (Phase(),)
        if last.steps is not None or not all(
            isinstance(phase.steps, int) and phase.steps > 0 for phase in earlier
        ):
            raise ValueError(
                "PHASES: each phase needs a number of steps, except the last, which takes the rest "
                f"of TRAIN_STEPS: {[phase.steps for phase in self.phases]}"
            )

    def _count_steps(self) -> None:
        """Gives phases their steps where tokens measure them, and makes those of growing batches.

        Raises:
          ValueError: batches cannot grow so, or a phase reads on where it cannot.
        """
        options = self.options
        if self.phases or options.batch_warmup_tokens is not None or options.batch_warmup_rows:
            phases = batch_growth.planned(
                self.phases or (Phase(),),
                batch_size=options.batch_size,
                lengths=self.data.lengths,
                microbatches=options.microbatches,
                tokens=options.batch_warmup_tokens,
                rows=options.batch_warmup_rows,
            )
            object.__setattr__(self, "phases", phases)
            grown = dataclasses.replace(options, batch_warmup_tokens=None, batch_warmup_rows=None)
            object.__setattr__(self, "options", grown)
        for before, phase in itertools.pairwise((None, *self.phases)):
            if phase is not None and phase.continues:
                _check_continues(before, phase)

    def make(self, *, rngs: nnx.Rngs) -> Model:
        """The model, adapted.

        Raises:
          ValueError: it cannot be made of its settings, or not adapted.
        """
        try:
            model = self.model(rngs=rngs)
        except TypeError as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"MODEL cannot be made with these settings: {reason}") from error
        return adapted(model, self.adapt, rngs)

    @functools.cached_property
    def abstract_model(self) -> Model:
        """The model, with shapes and dtypes as its parameters."""
        model: Model = nnx.eval_shape(lambda: self.make(rngs=nnx.Rngs(0)))
        return model

    @property
    def adapt_settings(self) -> dict[str, Any]:
        """The settings of `adapt` that are numbers, texts or made of these, usual ones too.

        A scale of adapters changes what their saved parameters mean, and no shape.
        """
        if self.adapt is None:
            return {}
        parameters = inspect.signature(self.adapt).parameters.values()
        values = {parameter.name: parameter.default for parameter in parameters}
        return {name: _plain(x) for name, x in values.items() if isinstance(x, _PLAIN)}

    def with_parts(self, **parts: Any) -> Run:
        """A copy with other parts, by name; the same model is not built again."""
        other = dataclasses.replace(self, **parts)
        built = vars(self).get("abstract_model")
        if built is not None and other.model is self.model and other.adapt is self.adapt:
            vars(other)["abstract_model"] = built
        return other

    def in_phases(self) -> list[tuple[int, Run]]:
        """(steps before it, the run with its settings) for each phase."""
        starts = phase_starts(self.phases)
        parts = [(start, phase.of(self)) for start, phase in zip(starts, self.phases, strict=True)]
        return parts or [(0, self)]

"""The record of a model's training from its directory: texts, steps, optimizer, metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from etils import epath

from t5x_like.config import gin_text
from t5x_like.core.buckets import storage
from t5x_like.data.streams.mixtures import identity_now
from t5x_like.runs import run_directory
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.logs.metrics_file import METRICS_FILE, read_metrics

_EVALUATION = "eval/"


@dataclasses.dataclass(frozen=True)
class RecordedPhase:
    """Steps whose batches are alike, from the first of them on.

    `weights` are those of its tasks, by name. `objectives` are theirs, each once.
    """

    first_step: int
    batch_size: int
    lengths: Mapping[str, int]
    weights: Mapping[str, int]
    objectives: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Text:
    """The training text of a task; its weight is relative to those of the other tasks."""

    name: str
    weight: int
    documents: int | None
    tokens: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """How a model came about; None or empty where the directory does not say.

    Attributes:
      origin: a sentence about where an imported model is from.
      recipe: the publication whose settings the run takes.
      initial: the name of the directory of the first parameters.
      optimizer: the name of its function.
      train_steps: the steps of the whole run, of which the checkpoint may have fewer.
      phases: by their steps; only those that the checkpoint has reached.
      texts: the training texts.
      metrics: {"<task>/<metric>": value} of the last evaluation up to the checkpoint.
      metrics_step: the step of that evaluation.
    """

    origin: str | None = None
    recipe: str | None = None
    initial: str | None = None
    optimizer: str | None = None
    train_steps: int | None = None
    phases: tuple[RecordedPhase, ...] = ()
    texts: tuple[Text, ...] = ()
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    metrics_step: int | None = None


def read(directory: str, step: int) -> TrainingRecord:
    """The record of a checkpoint.

    Args:
      directory: the directory of a run, of imported weights, or of Hugging Face's files.
      step: the step of the checkpoint.
    """
    path = storage.path(directory)
    if not run_directory.has_config(path):
        return TrainingRecord(origin=f"Imported from {path.name if path.exists() else directory}.")
    metadata = Checkpoints(run_directory.checkpoints(path)).metadata(step) or {}
    if "batch_size" not in metadata:
        return TrainingRecord(origin=metadata.get("title"))
    values = gin_text.read(metadata["config"]).values
    bound = {f"{name.selector}.{name.parameter}".strip("."): x for name, x in values.items()}
    phases = [
        phase for phase in _phases(identity_now(metadata)) if phase.first_step <= max(step, 1)
    ]
    metrics_step, metrics = _last_evaluation(path / METRICS_FILE, step)
    return TrainingRecord(
        recipe=_value(bound, "SOURCE"),
        initial=_initial(bound),
        optimizer=_function_name(_value(bound, "OPTIMIZER")),
        train_steps=_value(bound, "TRAIN_STEPS"),
        phases=tuple(phases),
        texts=tuple(_texts(metadata, phases)),
        metrics=metrics,
        metrics_step=metrics_step,
    )


def _value(bound: Mapping[str, Any], name: str) -> Any:
    """The value of a macro or parameter, through the macros that it refers to; None without one."""
    value = bound.get(name)
    return _value(bound, value) if isinstance(value, gin_text.Macro) else value


def _function_name(value: Any) -> str | None:
    return value.rpartition(".")[2] if isinstance(value, gin_text.Reference) else None


def _initial(bound: Mapping[str, Any]) -> str | None:
    """The last part of the directory's path: the rest is of the machine that trained."""
    if _value(bound, "INIT_FROM") is None:
        return None
    named = [_value(bound, name) for name in bound if name.endswith("InitFrom.directory")]
    return PurePath(named[0]).name if named and isinstance(named[0], str) else None


def _phases(metadata: Mapping[str, Any]) -> Iterator[RecordedPhase]:
    """The phases; the names of all but the first have their labels (`runs.phases`)."""
    n = 1
    label = ""
    while f"data{label}.lengths" in metadata:
        weights = metadata[f"data{label}.weights"]
        objectives = [metadata[f"data{label}.{name}.objective"] for name in weights]
        yield RecordedPhase(
            metadata.get(f"data{label}.start", 0) + 1,
            metadata[f"batch_size{label}"],
            metadata[f"data{label}.lengths"],
            weights,
            tuple(dict.fromkeys(objectives)),
        )
        n += 1
        label = f".phase_{n}"


def _texts(metadata: Mapping[str, Any], phases: Iterable[RecordedPhase]) -> Iterator[Text]:
    weights = {name: weight for phase in phases for name, weight in phase.weights.items()}
    for name, weight in weights.items():
        known = metadata.get("texts", {}).get(name, {})
        yield Text(name, weight, known.get("documents"), known.get("tokens"))


def _last_evaluation(path: epath.Path, step: int) -> tuple[int | None, dict[str, float]]:
    """The step and the finite metrics of the last evaluation up to `step`."""
    for line in reversed(read_metrics(path) if path.exists() else []):
        metrics = {
            name.removeprefix(_EVALUATION): value
            for name, value in line.items()
            if name.startswith(_EVALUATION) and value is not None
        }
        if metrics and line["step"] <= step:
            return line["step"], metrics
    return None, {}

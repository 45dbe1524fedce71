"""One model of several runs, or of one with adapters, as a directory like that of an import."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_like.config import gin_config
from t5x_like.core import progress
from t5x_like.core.abilities import AnswersTasks, can
from t5x_like.core.buckets import storage
from t5x_like.core.spelling import nearest
from t5x_like.interop import mapping
from t5x_like.runs import run_directory, saved_model
from t5x_like.runs.init_from import InitFrom
from t5x_like.runs.trained.merging import greedy_soup, merged_model, soups
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.optimization.parameter_paths import by_path

if TYPE_CHECKING:
    from t5x_like.runs.saved_model import SavedModel
    from t5x_like.training.checkpointing.ranking import WantedStep

WAYS = ("mean", "ties", "greedy")
_Combine = Callable[[str, list[np.ndarray]], np.ndarray]
"""One parameter of its path and its values in several models."""


def merge(
    directories: Sequence[str],
    target: str,
    *,
    how: str | None = None,
    weights: Sequence[float] | None = None,
    density: float | None = None,
    scale: float | None = None,
    step: WantedStep = None,
    steps: Sequence[int] | None = None,
    last: int | None = None,
    report: Callable[[str], None] = print,
) -> str:
    """Writes one model of the models of several runs, or of several steps of one.

    Changes of adapters go into its matrices.

    Args:
      directories: runs or imports with parameters of the same shapes; one with adapters is enough.
      target: a new or empty directory, which `load`, `predict`, `finetune` and `export` open.
      how: "mean" of the parameters (None), a soup; "greedy", the mean of those runs that make it no
        worse on held-out rows (`greedy_soup`); or "ties", the base and what differs from it in all
        of them (`soups.ties`).
      weights: of a mean, the weight of each run; None for equal ones.
      density, scale: of ties, the share of the differences that is kept (None: 0.2), and their
        factor (None: 1).
      step: the step of the checkpoints, or "best"; the newest by default.
      steps: of one run, the checkpoints whose mean is written; the first gives the settings of its
        phase, and `weights` are theirs.
      last: of one run, the number of its newest checkpoints whose mean is written.
      report: shows a line about each run of a greedy soup.

    Returns:
      A line about what was written.

    Raises:
      ValueError: models differ in their parameters, vocabularies or classes; a setting is out of
        range or of another way; a run started from nothing, or from another base.
      OSError: a directory cannot be read.
    """
    saved_model.check_new(target)
    how = how or WAYS[0]
    sources = _sources(directories, how, step=step, steps=steps, last=last)
    weights = _checked(len(sources), how, weights=weights, density=density, scale=scale)
    models = [_read(directory, number) for directory, number in sources]
    _check_alike(models)
    if how == "greedy":
        models = [models[number] for number in greedy_soup.chosen(models, report)]
        directories, weights = [m.directory for m in models], [1 / len(models)] * len(models)
    combine: _Combine = lambda path, of_models: soups.mean(of_models, weights)  # noqa: E731
    if how == "ties":
        factor = 1.0 if scale is None else scale
        combine = functools.partial(_with_base, _base(models), density=density or 0.2, scale=factor)
    title = _title(how, directories, models)
    _write(target, models, combine, title=title)
    return f"{target}: {title}"


def _write(target: str, models: Sequence[SavedModel], combine: _Combine, *, title: str) -> None:
    """Writes the model of the combined parameters, which is in all else the first."""
    first = models[0]
    saved_model.write(
        target,
        saved_model.constructor(first.directory, step=first.step),
        _merged(models, combine),
        title=title,
        vocabulary=first.vocabulary,
        files=[] if first.original is None else [*map(Path, first.original.iterdir())],
        labels=first.labels,
    )


def _title(how: str, directories: Sequence[str], models: Sequence[SavedModel]) -> str:
    """A line about what is merged."""
    named = ", ".join(directories)
    if len(models) == 1 and how == "greedy":
        return f"{named} alone, which no other run makes better."
    if len(models) == 1:
        return f"{named}, merged with its adapters."
    if len(directories) < len(models):
        named = f"steps {', '.join(str(model.step) for model in models)} of {named}"
    return f"The {'greedy soup' if how == 'greedy' else how} of {named}."


def _sources(
    directories: Sequence[str],
    how: str,
    *,
    step: WantedStep,
    steps: Sequence[int] | None,
    last: int | None,
) -> list[tuple[str, WantedStep]]:
    """The directory and the step of each model; raises ValueError where steps cannot be merged."""
    if steps is None and last is None:
        return [(directory, step) for directory in directories]
    if len(directories) > 1 or step is not None or how != "mean":
        raise ValueError("steps and last are for the mean of one run, without step")
    if steps is not None and last is not None:
        raise ValueError("steps name checkpoints, and last counts the newest: give one of them")
    if steps is not None and (len(steps) < 2 or len({*steps}) < len(steps)):
        raise ValueError(f"a mean needs two different steps at least, not {[*steps]}")
    if last is not None and last < 2:
        raise ValueError(f"a mean needs the last 2 checkpoints at least, not {last}")
    chosen = _newest(directories[0], last or 0) if steps is None else steps
    return [(directories[0], number) for number in chosen]


def _newest(directory: str, count: int) -> list[int]:
    """The newest steps that a run has saved, the last one first.

    Raises:
      ValueError: it has fewer.
    """
    saved = Checkpoints(run_directory.checkpoints(storage.path(directory))).steps()
    if len(saved) < count:
        raise ValueError(
            f"{directory} has {len(saved)} checkpoints, not {count}: {saved}. CHECKPOINTS_KEPT is "
            "the number that a run keeps"
        )
    return sorted(saved, reverse=True)[:count]


def _read(directory: str, step: WantedStep) -> SavedModel:
    """The model of a directory without adapters; raises ValueError where it has several heads."""
    model = saved_model.read(directory, step=step)
    if can(model.model, AnswersTasks):
        raise ValueError(
            f"{directory} has heads of several tasks, which are not merged: export one with the "
            "body (--task_head), import what was exported, and merge that"
        )
    return merged_model.without_adapters(model)


def _merged(models: Sequence[SavedModel], combine: _Combine) -> dict[str, Any]:
    """The nested dict of the merged parameters; those of one path are in memory at a time."""
    leaves = [by_path(model.params) for model in models]
    params = {
        path.replace(".", "/"): combine(path, [np.asarray(of_model[path]) for of_model in leaves])
        for path in progress.bar([*leaves[0]], desc="merging", unit=" parameters", leave=False)
    }
    return mapping.nested(params)


def _checked(
    count: int,
    how: str,
    *,
    weights: Sequence[float] | None,
    density: float | None,
    scale: float | None,
) -> Sequence[float]:
    """The weights of a mean; raises ValueError as `merge`."""
    if how not in WAYS:
        raise ValueError(f"there is no way {how!r} to merge{nearest(how, WAYS, of='ways')}")
    if how != "ties" and not (density is None and scale is None):
        raise ValueError("density and scale are settings of ties, not of a mean")
    if how != "mean" and weights is not None:
        raise ValueError(f"weights are a setting of a mean, not of {how}")
    if how == "ties" and count < 2:
        raise ValueError("ties is for what several runs agree on: name two at least")
    if density is not None and not 0 < density <= 1:
        raise ValueError(f"density is above 0 and at most 1, not {density}")
    weights = [1.0] * count if weights is None else [*weights]
    if len(weights) != count or sum(weights) <= 0:
        raise ValueError(
            f"there are {count} runs and {len(weights)} weights: give one for each, and above 0 in "
            "all"
        )
    return [weight / sum(weights) for weight in weights]


def _check_alike(models: Sequence[SavedModel]) -> None:
    """Raises ValueError where two models differ in more than the values of their parameters."""
    first = models[0]
    shapes = {path: tuple(leaf.shape) for path, leaf in by_path(first.params).items()}
    for model in models[1:]:
        others = {path: tuple(leaf.shape) for path, leaf in by_path(model.params).items()}
        if odd := sorted(path for path, _ in shapes.items() ^ others.items()):
            raise ValueError(
                f"{first.directory} and {model.directory} differ in {odd[0]}: only models of the "
                "same sizes with the same head are merged"
            )
        prints = [m.vocabulary and m.vocabulary.fingerprint for m in (first, model)]
        if prints[0] != prints[1]:
            raise ValueError(f"{first.directory} and {model.directory} have other vocabularies")
        if first.labels != model.labels:
            raise ValueError(
                f"{first.directory} and {model.directory} have learned other classes: "
                f"{', '.join(first.labels)} and {', '.join(model.labels)}"
            )


def _base(models: Sequence[SavedModel]) -> dict[str, Any]:
    """{path: parameter} of the base from which all of some runs started.

    Raises:
      ValueError: a run started from nothing, or two from different places.
    """
    started = {model.directory: _started_from(model.directory) for model in models}
    sources = [start.directory if start is not None else None for start in started.values()]
    if None in sources or len({*sources}) > 1:
        raise ValueError(
            "ties adds what differs from one base, and these runs started from "
            f"{', '.join(str(source) for source in sources)}"
        )
    start = next(iter(started.values()))
    assert start is not None  # for the type checker
    saved = by_path(saved_model.read(str(start.directory), step=start.step).params)
    return {path: saved[there] for path, there in start.sources(models[0].model).items()}


def _started_from(directory: str) -> InitFrom | None:
    """`Run.init_from` of the run in a directory; None where it has none."""
    if "INIT_FROM" not in saved_model.macros(directory):
        return None
    with gin_config.temporary_configuration():
        run_directory.load_config(storage.path(directory))
        start = gin_config.without_gin(gin_config.macro("INIT_FROM"))
        made: InitFrom | None = gin_config.call(start) if callable(start) else start
        return made


def _with_base(
    base: Mapping[str, Any],
    path: str,
    models: list[np.ndarray],
    *,
    density: float,
    scale: float,
) -> np.ndarray:
    """`soups.ties`; the mean of a parameter that the base has not, of a head."""
    known = base.get(path)
    if known is None or known.shape != models[0].shape:
        return soups.mean(models, [1 / len(models)] * len(models))
    return soups.ties(np.asarray(known, np.float32), models, density=density, scale=scale)

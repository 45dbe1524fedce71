"""Greedy soups: runs join a mean while it gets no worse on held-out rows (Wortsman et al., 2022).

This is recipe 1 of their section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from t5x_like.config import gin_text
from t5x_like.core.buckets import storage
from t5x_like.runs import run_directory
from t5x_like.runs.trained.merging.held_out import HeldOut
from t5x_like.training.optimization.parameter_paths import by_path

if TYPE_CHECKING:
    from t5x_like.runs.saved_model import SavedModel

Parameters = Mapping[str, np.ndarray]
"""{path: value} of a model."""


class Tried(NamedTuple):
    """A model that was tried.

    Attributes:
      number: its number among all.
      alone: its own metric.
      together: the metric of the soup with it.
      kept: whether it stays there.
    """

    number: int
    alone: float
    together: float
    kept: bool


def chosen(models: Sequence[SavedModel], report: Callable[[str], None]) -> list[int]:
    """The numbers of the models whose mean is the greedy soup, the best one first.

    All are measured on the held-out rows of the first, by its BEST_METRIC.

    Args:
      models: fine-tuned runs with parameters of one shape, without adapters.
      report: shows a line about each model.

    Raises:
      ValueError: one is no run, or they hold out other rows, or none.
      OSError: a directory cannot be read.
    """
    if len(models) < 2:
        raise ValueError("a greedy soup is of several runs: name two at least, or a sweep")
    _check_rows([model.directory for model in models])
    held_out = HeldOut.of(models[0], report)
    leaves = [by_path(model.params) for model in models]
    name = held_out.best.name
    kept: list[int] = []

    def read(number: int) -> dict[str, np.ndarray]:
        return {path: np.asarray(x, np.float32) for path, x in leaves[number].items()}

    for tried in greedy(len(models), read, held_out, higher=held_out.best.higher):
        model, count = models[tried.number], len(kept)
        kept += [tried.number] if tried.kept else []
        joined = f"with the {count} before {tried.together:.4f}, " if count else ""
        report(
            f"{model.directory}, step {model.step}: {name} {tried.alone:.4f}, {joined}"
            + ("kept" if tried.kept else "left out")
        )
    return kept


def greedy(
    count: int,
    read: Callable[[int], Parameters],
    measure: Callable[[Parameters], float],
    *,
    higher: bool,
) -> Iterator[Tried]:
    """Tries the models, the best one first, which is kept.

    Args:
      count: how many models there are.
      read: gives the parameters of a model by its number.
      measure: gives the metric of parameters.
      higher: whether higher values are better.
    """
    sign = 1 if higher else -1
    alone = [measure(read(number)) for number in range(count)]
    order = sorted(range(count), key=lambda number: -sign * alone[number])
    total: Any = read(order[0])
    best, kept = alone[order[0]], 1
    yield Tried(order[0], best, best, kept=True)
    for number in order[1:]:
        others = read(number)
        joined = {path: x + others[path] for path, x in total.items()}
        value = measure({path: x / np.float32(kept + 1) for path, x in joined.items()})
        is_kept = sign * value >= sign * best
        yield Tried(number, alone[number], value, kept=is_kept)
        if is_kept:
            total, best, kept = joined, value, kept + 1


def _check_rows(directories: Sequence[str]) -> None:
    """Raises ValueError where runs hold out other rows, which another may have learned from."""
    rows = {directory: _held_out_rows(directory) for directory in directories}
    first, *others = rows
    for directory in others:
        if rows[directory] != rows[first]:
            raise ValueError(
                f"{first} and {directory} hold out other rows ({_shown(rows[first])}; "
                f"{_shown(rows[directory])}): a greedy soup is of runs with the same ones (--dev)"
            )


def _held_out_rows(directory: str) -> dict[str, Any]:
    """The settings of a run that decide its held-out rows.

    Raises:
      ValueError: it is not a run.
    """
    path = storage.path(directory)
    if not run_directory.is_run(path):
        raise ValueError(
            f"{directory} is not a run and holds no rows out: a greedy soup is of fine-tuned runs"
        )
    macros = gin_text.read(run_directory.read_config(path)).values
    named = {str(name): value for name, value in macros.items()}
    drawn = ("CORPUS", "CORPUS_VALIDATION") if named.get("CORPUS_HELD_OUT") is None else ()
    names = ("MIXTURE_OR_TASK_NAME", "CORPUS_HELD_OUT", *drawn)
    return {name: named.get(name) for name in names}


def _shown(rows: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in rows.items() if value is not None)

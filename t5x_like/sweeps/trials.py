"""The runs of a sweep: one for each setting and seed, and the file that says which they are."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files
from t5x_like.core.spelling import differences
from t5x_like.sweeps import axes

SWEEP_FILE = "sweep.json"
TRIALS = "trials"
"""The folder of the runs in the folder of a sweep."""
EXAMPLES, TASK = "examples", "task"
"""Axes that are no settings of training: how many training rows there are, and what is learned."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run of a sweep.

    Attributes:
      setting: the value of each axis.
      seed: the seed of the run.
    """

    setting: Mapping[str, Any]
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return axes.folder({**self.setting, "seed": self.seed})

    @property
    def label(self) -> str:
        """The trial in words."""
        return axes.label({**self.setting, "seed": self.seed})

    def arguments(self) -> dict[str, Any]:
        """The values of the axes that are arguments of `t5x_like.finetune`, by their names."""
        return {name: x for name, x in self.setting.items() if not axes.is_macro(name)}

    def bindings(self) -> list[str]:
        """The other axes, as gin has them."""
        return [f"{name}={x!r}" for name, x in self.setting.items() if axes.is_macro(name)]


def planned(
    settings: Sequence[Mapping[str, Any]],
    seeds: Sequence[int],
    *,
    tasks: Sequence[str] = (),
    examples: Sequence[int | str] = (),
) -> list[Trial]:
    """The trials, all settings with one seed before those with the next.

    Args:
      settings: the values of the axes that are settings.
      seeds: the seeds of each.
      tasks: the tasks by name, if there are several.
      examples: the numbers of training rows, or all; empty where this is no axis.

    Raises:
      ValueError: there is no seed, a value comes twice, or two settings have the same name.
    """
    several: list[tuple[str, Sequence[Any]]] = [(TASK, tasks), (EXAMPLES, examples)]
    rows: list[dict[str, Any]] = [{}]
    for name, values in (*several, ("seeds", seeds)):
        if len({*values}) < len(values):
            raise ValueError(f"{name} has a value twice: {', '.join(map(str, values))}")
        if values and name != "seeds":
            rows = [{**row, name: value} for row in rows for value in values]
    if not seeds:
        raise ValueError("seeds must be at least 1")
    trials = [
        Trial({**row, **setting}, seed) for seed in seeds for row in rows for setting in settings
    ]
    if len({trial.name for trial in trials}) < len(trials):
        raise ValueError("two settings of the sweep have the same name: write their values apart")
    return trials


def remember(directory: Path, about: Mapping[str, Any], trials: Sequence[Trial]) -> None:
    """Writes what a sweep is into its folder, which has nothing else or the same sweep.

    Args:
      directory: the folder of the sweep.
      about: JSON that decides what each trial is; not how many seeds there are.
      trials: the trials.

    Raises:
      ValueError: the folder has another sweep, or something else.
      OSError: it cannot be written.
    """
    about = json.loads(json.dumps(about))  # as it will be read: tuples become lists
    names: list[str] = []
    path = directory / SWEEP_FILE
    if path.exists():
        names, known = (whole_files.read_json(path)[name] for name in ("trials", "about"))
        if known != about:
            changed = differences(known, about, "{name} was {first} and is {second}")
            raise ValueError(
                f"{directory} has a sweep with other settings: {changed}. Name another folder "
                "(model_dir), or give the settings it began with; only seeds may be added"
            )
    elif directory.exists() and any(directory.iterdir()):
        raise ValueError(f"{directory} has files, but no sweep: name another folder (model_dir)")
    directory.mkdir(parents=True, exist_ok=True)
    names = [*dict.fromkeys([*names, *(trial.name for trial in trials)])]
    content = {"about": about, "trials": names}
    whole_files.write(path, json.dumps(content, indent=1).encode())


def is_sweep(directory: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return (directory / SWEEP_FILE).exists()

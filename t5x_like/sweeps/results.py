"""What the runs of a sweep came to: a line of JSON for each that has ended."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t5x_like.core import whole_files
from t5x_like.training.checkpointing.ranking import BestMetric
from t5x_like.training.logs.metrics_file import METRICS_FILE, json_lines, read_metrics

RESULTS_FILE = "trials.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a trial came to.

    Attributes:
      trial: its name, that of its folder.
      setting: the value of each axis.
      seed: its seed.
      metric: the metric by which its checkpoints are ranked.
      higher: whether higher values are better.
      value: the best value of it, on held-out rows; None if it never had one.
      step: the step of that evaluation.
      metrics: all held-out metrics of that evaluation, without the name of the task.
      floor: the value of always giving the same answer; None if that is not known.
      evaluations: the best value up to each evaluation, in order; None before the first.
      ended_early: the step at which a bad trial was ended; None for one that went to its end.
      diverged: whether its loss was not finite or rose too far, so that it has no value.
      one_class: whether all held-out rows have one class, so that no trial can be better.
      seconds: the time that it took.
    """

    trial: str
    setting: Mapping[str, Any]
    seed: int
    metric: str
    higher: bool
    value: float | None
    step: int | None
    metrics: Mapping[str, float]
    floor: float | None
    evaluations: Sequence[float | None]
    ended_early: int | None
    seconds: float
    diverged: bool = False
    one_class: bool = False

    @property
    def failed(self) -> bool:
        """Whether it is not better than always giving the same answer (Mosbach et al., 2021)."""
        if self.value is None:
            return True
        if self.floor is None:
            return False
        return self.value <= self.floor if self.higher else self.value >= self.floor


class Evaluation(NamedTuple):
    """The best evaluation of a run.

    Attributes:
      value: the value of the metric; None if it never had one.
      step: the step.
      metrics: all held-out metrics, `<task>/<metric>`.
      floor: the value of always giving the same answer; None if that is not known.
      one_class: whether that is always right.
    """

    value: float | None = None
    step: int | None = None
    metrics: Mapping[str, float] = {}
    floor: float | None = None
    one_class: bool = False


def best_of(directory: Path, best: BestMetric) -> tuple[Evaluation, list[float | None]]:
    """The best evaluation that a run has logged, and the best value up to each one.

    Raises:
      OSError: the log cannot be read.
    """
    known, so_far = Evaluation(), []
    path = directory / METRICS_FILE
    for line in read_metrics(path) if path.exists() else ():
        if baseline := _of(line, "baseline/"):
            shares = [x for name, x in baseline.items() if name.endswith("/accuracy")]
            known = known._replace(floor=best.value(baseline), one_class=1.0 in shares)
        if evaluated := _of(line, "eval/"):
            value = best.value(evaluated)
            if value is not None and (
                known.value is None or better(value, known.value, higher=best.higher)
            ):
                known = known._replace(value=value, step=line["step"], metrics=evaluated)
            so_far.append(known.value)
    return known, so_far


def measured(
    directory: Path,
    best: BestMetric,
    *,
    trial: str,
    setting: Mapping[str, Any],
    seed: int,
    ended_early: int | None,
    diverged: bool,
    seconds: float,
) -> Result:
    """The result of the run in a directory, by what it has logged.

    Raises:
      OSError: the log cannot be read.
    """
    known, so_far = best_of(directory, best)
    return Result(
        trial=trial,
        setting=setting,
        seed=seed,
        metric=best.name,
        higher=best.higher,
        value=None if diverged else known.value,
        step=known.step,
        metrics={name.rpartition("/")[2]: x for name, x in known.metrics.items()},
        floor=known.floor,
        evaluations=so_far,
        ended_early=ended_early,
        diverged=diverged,
        one_class=known.one_class,
        seconds=seconds,
    )


def better(value: float, other: float, *, higher: bool) -> bool:
    """Whether a value of a metric is better than another one."""
    return value > other if higher else value < other


def _of(line: Mapping[str, Any], start: str) -> dict[str, float]:
    """The finite numbers of a line of the log whose names have this start, without it."""
    return {
        name.removeprefix(start): x
        for name, x in line.items()
        if name.startswith(start) and isinstance(x, int | float) and math.isfinite(x)
    }


def write(directory: Path, results: Iterable[Result]) -> None:
    """Writes the lines of a sweep.

    Raises:
      OSError: they cannot be written.
    """
    lines = (json.dumps({**dataclasses.asdict(r), "failed": r.failed}) + "\n" for r in results)
    whole_files.write(directory / RESULTS_FILE, "".join(lines).encode())


def read(directory: Path) -> dict[str, Result]:
    """{name of a trial: its result} of those that have ended; damaged lines are left out."""
    path = directory / RESULTS_FILE
    if not path.exists():
        return {}
    fields = dataclasses.fields(Result)
    needed = {field.name for field in fields if field.default is dataclasses.MISSING}
    lines = [line for line in json_lines(path) if isinstance(line, dict) and needed <= {*line}]
    known = [
        {field.name: line[field.name] for field in fields if field.name in line} for line in lines
    ]
    return {line["trial"]: Result(**line) for line in known}

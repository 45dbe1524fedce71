"""Curves of runs, with their phases and baselines, read from what the runs have logged."""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from t5x_like.core.buckets import storage
from t5x_like.core.spelling import nearest
from t5x_like.training.logs.metrics_file import METRICS_FILE, read_metrics
from t5x_like.training.logs.starts import STARTS_FILE, read_starts, starts

Curve = tuple[list[int], list[float]]

_LOSS = ("loss", "token_loss")


@dataclasses.dataclass(frozen=True)
class RunCurves:
    """The curves of a run.

    Attributes:
      name: the name of its directory.
      values: {name of a metric: (steps, finite values)}, with `train/` or `eval/<task>/`.
      baselines: {name of a metric of an evaluation: (first step of a phase, value) of each phase}.
      phases: the steps after which a new phase began.
      end: the last step that was logged.
    """

    name: str
    values: Mapping[str, Curve]
    baselines: Mapping[str, Curve]
    phases: Sequence[int]
    end: int

    def losses(self) -> list[str]:
        """The names of the loss of training and of each evaluation."""
        return [name for name in self.values if name.rpartition("/")[2] in _LOSS]


def read_curves(directory: epath.PathLike) -> RunCurves:
    """The curves of a run.

    Raises:
      ValueError: nothing was logged there.
      OSError: a file cannot be read.
    """
    path = storage.path(directory)
    if not (path / METRICS_FILE).exists():
        raise ValueError(f"No {METRICS_FILE} in {directory}: give the directory of a run.")
    lines = read_metrics(path / METRICS_FILE)
    return curves_of(path.name, lines, phase_starts(read_starts(path / STARTS_FILE)))


def curves_of(
    name: str, lines: Iterable[Mapping[str, Any]], phases: Sequence[int] = ()
) -> RunCurves:
    """The curves of lines of `metrics.jsonl`; phases that were not reached are left out."""
    values: dict[str, Curve] = {}
    baselines: dict[str, Curve] = {}
    end = 0
    for line in lines:
        step = line["step"]
        if not 0 <= step < 2**53:
            continue
        for metric, value in line.items():
            kind, _, rest = metric.partition("/")
            if not rest or (number := _finite(value)) is None:
                continue
            if kind == "baseline":
                _add(baselines, f"eval/{rest}", step, number)
            else:
                _add(values, metric, step, number)
                end = max(end, step)
    return RunCurves(name, values, baselines, [phase for phase in phases if 0 < phase < end], end)


def phase_starts(records: Sequence[Mapping[str, Any]]) -> list[int]:
    """The steps before each phase, as the last start of a run has written them down."""
    all_starts = starts(records)
    return (
        [phase["start"] for phase in all_starts[-1].about.get("phases", [])] if all_starts else []
    )


def choose(runs: Sequence[RunCurves], patterns: str) -> list[str]:
    """The names of metrics of any run that match one of several patterns between commas.

    Raises:
      ValueError: nothing matches a pattern; the message has the names.
    """
    names = sorted({name for run in runs for name in run.values})
    chosen: dict[str, None] = {}
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        matching = fnmatch.filter(names, pattern)
        if not matching:
            raise ValueError(
                f"--metrics: no metric is named {pattern!r}{nearest(pattern, names, of='metrics')}"
            )
        chosen |= dict.fromkeys(matching)
    if not chosen:
        raise ValueError(f"--metrics names nothing{nearest('', names, of='metrics')}")
    return list(chosen)


def _add(curves: dict[str, Curve], name: str, step: int, value: float) -> None:
    steps, values = curves.setdefault(name, ([], []))
    steps.append(step)
    values.append(value)


def _finite(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, OverflowError):
        return None
    return number if math.isfinite(number) else None

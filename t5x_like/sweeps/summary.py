"""The results of a sweep by setting: median, best, mean, deviation and spread over the seeds."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t5x_like.sweeps import axes
from t5x_like.sweeps.results import Result
from t5x_like.sweeps.trials import EXAMPLES, TASK

HEADER = (
    *("setting", "seeds", "median", "best", "mean", "sd", "spread"),
    *("floor", "failed", "diverged", "ended early"),
)


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a setting came to over its seeds.

    Attributes:
      setting: the value of each axis.
      results: the trials of the setting, in the order of their seeds; at least one.
    """

    setting: Mapping[str, Any]
    results: Sequence[Result]

    @property
    def values(self) -> list[float]:
        """The values of the trials that have one."""
        return [result.value for result in self.results if result.value is not None]

    @property
    def median(self) -> float | None:
        """The median, in which a trial without a value is the worst; None if it is such a one."""
        worst = -math.inf if self.results[0].higher else math.inf
        values = (worst if result.value is None else result.value for result in self.results)
        median = statistics.median(values)
        return median if math.isfinite(median) else None

    @property
    def best(self) -> Result | None:
        """The best trial."""
        ranked = [result for result in self.results if result.value is not None]
        return min(ranked, key=_rank, default=None)

    @property
    def mean(self) -> float | None:
        """The mean of the values."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the values, by n - 1; None for less than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def spread(self) -> float | None:
        """The highest value less the lowest."""
        return max(self.values) - min(self.values) if self.values else None

    @property
    def floor(self) -> float | None:
        """The value of always giving the same answer."""
        return next((r.floor for r in self.results if r.floor is not None), None)

    @property
    def failed(self) -> int:
        """How many trials are not better than that."""
        return sum(result.failed for result in self.results)

    @property
    def diverged(self) -> int:
        """How many trials diverged."""
        return sum(result.diverged for result in self.results)

    @property
    def ended_early(self) -> int:
        """How many trials were ended early."""
        return sum(result.ended_early is not None for result in self.results)

    def cells(self) -> tuple[str, ...]:
        """Its row of the table, as `HEADER` names it."""
        best = None if self.best is None else self.best.value
        numbers = (self.median, best, self.mean, self.deviation, self.spread, self.floor)
        shown = ["" if number is None else f"{number:.4f}" for number in numbers]
        counts = [str(n or "") for n in (self.failed, self.diverged, self.ended_early)]
        return (axes.label(self.setting) or "the usual", str(len(self.results)), *shown, *counts)


def summaries(results: Iterable[Result]) -> list[Summary]:
    """The summary of each setting, in the order in which they come."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(axes.label(result.setting), []).append(result)
    return [Summary(group[0].setting, group) for group in groups.values()]


def best(of: Iterable[Summary]) -> list[Summary]:
    """The setting with the best median, then mean, of each task and each number of examples."""
    groups: dict[tuple[Any, ...], list[Summary]] = {}
    for summary in of:
        if summary.median is not None:
            place = tuple(summary.setting.get(name) for name in (TASK, EXAMPLES))
            groups.setdefault(place, []).append(summary)
    return [min(group, key=_median_rank) for group in groups.values()]


def _rank(result: Result) -> float:
    assert result.value is not None
    return -result.value if result.higher else result.value


def _median_rank(summary: Summary) -> tuple[float, float]:
    median, mean = summary.median, summary.mean
    assert median is not None
    assert mean is not None
    return (-median, -mean) if summary.results[0].higher else (median, mean)


def lines(of: Sequence[Summary]) -> list[str]:
    """A table of settings as text."""
    rows = [HEADER, *(summary.cells() for summary in of)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    kept = [n for n in range(len(HEADER)) if any(row[n] for row in rows[1:])]
    return [
        "  ".join(
            row[n].ljust(widths[n]) if n == 0 else row[n].rjust(widths[n]) for n in kept
        ).rstrip()
        for row in rows
    ]

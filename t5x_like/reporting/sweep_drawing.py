"""Pictures of a sweep: a dot for each run, by its setting or by its number of training rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_like.reporting import drawing
from t5x_like.sweeps import axes
from t5x_like.sweeps.summary import Summary
from t5x_like.sweeps.trials import EXAMPLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW = 0.35
"""Inches of a setting in the picture of dots."""
_ENDED = "x"
"""The mark of a run that was ended early."""


def dots(summaries: Sequence[Summary]) -> str:
    """An SVG element: a row for each setting, a dot for each seed, a bar at their median."""
    return drawing.element(lambda: _dots(summaries), salt="dots")


def curve(summaries: Sequence[Summary], rows: int | None) -> str:
    """An SVG element: the mean and its standard deviation by the number of training rows.

    Args:
      summaries: those of a task; a line for each setting besides the number of rows.
      rows: the number of all training rows; None where it is not known, so that these are left out.
    """
    return drawing.element(lambda: _curve(summaries, rows), salt="curve")


def _figure(height: float, **labels: Any) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, height), layout="constrained")
    return figure, figure.add_subplot(1, 1, 1, **labels)


def _dots(summaries: Sequence[Summary]) -> Figure:
    metric = summaries[0].results[0].metric
    figure, axes_of = _figure(1 + _ROW * len(summaries), xlabel=f"held-out {metric}")
    places = range(len(summaries))
    for place, summary in zip(places, summaries, strict=True):
        for result in summary.results:
            if result.value is not None:
                _dot(axes_of, result.value, place, ended_early=result.ended_early is not None)
        if (median := summary.median) is not None:
            axes_of.plot(median, place, "|", markersize=14, color="C1")
    floors = {summary.floor for summary in summaries if summary.floor is not None}
    for floor in floors:
        axes_of.axvline(floor, linestyle=":", linewidth=1, color="C6")
    labels = [axes.label(summary.setting) or "the usual" for summary in summaries]
    axes_of.set_yticks([*places], labels)
    axes_of.set_ylim(len(summaries) - 0.5, -0.5)
    axes_of.grid(axis="x", alpha=0.3)
    return figure


def _dot(axes_of: Axes, value: float, place: float, *, ended_early: bool) -> None:
    marker = _ENDED if ended_early else "o"
    axes_of.plot(value, place, marker, markersize=5, color="C0", alpha=0.7)


def _curve(summaries: Sequence[Summary], rows: int | None) -> Figure:
    metric = summaries[0].results[0].metric
    figure, axes_of = _figure(4, xlabel="training rows", ylabel=f"held-out {metric}")
    lines: dict[str, list[tuple[int, Summary]]] = {}
    for summary in summaries:
        examples = summary.setting[EXAMPLES]
        count = examples if isinstance(examples, int) else rows
        others = {name: x for name, x in summary.setting.items() if name != EXAMPLES}
        if count is not None and summary.mean is not None:
            lines.setdefault(axes.label(others), []).append((count, summary))
    for number, (label, points) in enumerate(lines.items()):
        points.sort(key=lambda point: point[0])
        counts = [count for count, _ in points]
        means = np.array([summary.mean for _, summary in points])
        deviations = np.array([summary.deviation or 0.0 for _, summary in points])
        colour = f"C{number % 8}"
        axes_of.plot(counts, means, marker="o", markersize=4, color=colour, label=label or "mean")
        axes_of.fill_between(
            counts, means - deviations, means + deviations, alpha=0.2, color=colour, linewidth=0
        )
        for count, summary in points:
            values = summary.values
            axes_of.plot([count] * len(values), values, "o", markersize=3, color=colour, alpha=0.5)
    floor = next((summary.floor for summary in summaries if summary.floor is not None), None)
    if floor is not None:
        axes_of.axhline(floor, linestyle=":", linewidth=1, color="C6", label="one answer to all")
    ticks = sorted({count for points in lines.values() for count, _ in points})
    axes_of.set_xscale("log")
    axes_of.set_xticks(ticks, [f"{count:,}" for count in ticks], minor=False)
    axes_of.minorticks_off()
    axes_of.grid(alpha=0.3)
    axes_of.legend(fontsize="small")
    return figure

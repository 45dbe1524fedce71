"""A plot of a finding: the result of each seed of each side, and the mean."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from finding_tables import Lines
from matplotlib.figure import Figure


def drawn(lines: Lines, sides: Mapping[str, str], columns: Mapping[str, str]) -> Figure:
    """A panel for each column, a row for each side that was run.

    Args:
      lines: those of one finding.
      sides: {side: its label}, from the top.
      columns: {heading: metric}.
    """
    run = [side for side in sides if any(line["side"] == side for line in lines)]
    size = (2.5 + 2.5 * len(columns), 1 + 0.28 * len(run))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for panel, (heading, metric) in zip(panels, columns.items(), strict=True):
        for row, side in enumerate(run):
            found = [line["metrics"].get(metric) for line in lines if line["side"] == side]
            if values := [value for value in found if value is not None]:
                panel.plot(values, [row] * len(values), "o", color="C0", fillstyle="none")
                panel.plot(statistics.mean(values), row, "|", color="C1", markersize=16)
        panel.set_title(heading)
        panel.grid(alpha=0.3)
    panels[0].set_yticks(range(len(run)), [sides[side] for side in run])
    panels[0].set_ylim(len(run) - 0.5, -0.5)
    return figure

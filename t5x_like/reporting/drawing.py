"""Curves as pictures: a panel for each kind of metric, with phases and baselines."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from t5x_like.core import whole_files
from t5x_like.reporting.curves import RunCurves, choose, read_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = {"loss": "loss per target (nats)"}
_INK = "#123456"
"""Stands for the colour of the page's text."""
_COLOURS = ("#3d8fe0", "#e0703d", "#2fa866", "#a972d6", "#c9a227", "#d6568c", "#6f8fa8", "#8a9a3b")
"""Seen on white and on black."""
_LONGEST = 60


def plot(
    directories: Sequence[epath.PathLike], output: epath.PathLike, *, metrics: str | None = None
) -> None:
    """Draws curves of runs over their steps into one PNG file, each kind of metric in a panel.

    Training is a thin line, an evaluation a dashed line with dots, its baseline a dashed horizontal
    line, the begin of a phase a dotted vertical one; each run has one colour.

    Args:
      directories: the directories of the runs.
      output: the file.
      metrics: patterns of names between commas, such as "train/loss,eval/*"; None for losses.

    Raises:
      ValueError: no directory was given, one holds no loss, or a pattern matches nothing.
    """
    if not directories:
        raise ValueError("Give the directory of at least one run.")
    runs = []
    for directory in directories:
        runs.append(read_curves(directory))
        if metrics is None and not runs[-1].losses():
            raise ValueError(f"{directory} has logged no loss yet: train a little longer.")
    names = [*_losses(runs)] if metrics is None else choose(runs, metrics)
    figure = draw(runs, names)
    output = epath.Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with whole_files.output(output) as file:
        figure.savefig(file, format="png", dpi=120)


def svg(runs: Sequence[RunCurves], names: Sequence[str]) -> str:
    """The same as an SVG element for a page, whose colour of text it takes."""
    import matplotlib
    from matplotlib.rcsetup import cycler

    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings: Any = {
        "axes.prop_cycle": cycler("color", _COLOURS),
        **dict.fromkeys(inked, _INK),
        "grid.color": _INK,
        "legend.facecolor": "none",
        "svg.fonttype": "none",
        # Else names of things in the picture are random, and the same run has another page.
        "svg.hashsalt": " ".join(names),
    }
    written = io.StringIO()
    with matplotlib.rc_context(settings):
        figure = draw(runs, names, panel=4)
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    text = written.getvalue().replace(_INK, "currentColor")
    element = text[text.index("<svg") :]
    # It is as wide as the page: its viewBox says how high that makes it.
    return re.sub(r' (width|height)="[\d.]+pt"', "", element, count=2)


def draw(runs: Sequence[RunCurves], names: Sequence[str], *, panel: float = 5) -> Figure:
    """A figure with a panel of `panel` inches for each kind of the named metrics."""
    # The import is here because it takes a second. Without pyplot it does not look for a display.
    import matplotlib
    from matplotlib.figure import Figure

    panels: dict[str, list[str]] = {}
    for name in names:
        panels.setdefault(_kind(name), []).append(name)
    # Names are anybody's: a dollar sign in one is no formula.
    with matplotlib.rc_context({"text.parse_math": False}):
        figure = Figure(figsize=(8, panel * len(panels)), layout="constrained")
        for place, (kind, mine) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(
                len(panels), 1, place, xlabel="step", ylabel=_LABELS.get(kind, kind)
            )
            for index, run in enumerate(runs):
                _draw_run(axes, run, mine, color=f"C{index % 10}")
            axes.grid(alpha=0.3)
            axes.legend()
    return figure


def _losses(runs: Sequence[RunCurves]) -> Iterable[str]:
    return dict.fromkeys(name for run in runs for name in run.losses())


def _short(text: str) -> str:
    printable = "".join(one if one.isprintable() else "?" for one in text)
    return printable if len(printable) <= _LONGEST else printable[: _LONGEST - 3] + "..."


def _kind(name: str) -> str:
    last = name.rpartition("/")[2]
    return "loss" if last == "token_loss" else last


def _draw_run(axes: Axes, run: RunCurves, names: Sequence[str], *, color: str) -> None:
    for name in names:
        if name not in run.values:
            continue
        steps, values = run.values[name]
        style: dict[str, Any] = (
            {"linestyle": "--", "marker": "o", "markersize": 4}
            if name.startswith("eval/")
            else {"linewidth": 1, "alpha": 0.7}
        )
        label = _short(f"{run.name}: {name.rpartition('/')[0]}")
        axes.plot(steps, values, color=color, label=label, **style)
        if name in run.baselines:
            _draw_baseline(axes, run, name, color=color)
    for number, start in enumerate(run.phases, 2):
        axes.axvline(start, color=color, linestyle=":", linewidth=1)
        axes.annotate(
            f" phase {number}",
            (start, 1),
            xycoords=("data", "axes fraction"),
            verticalalignment="top",
            fontsize="small",
            color=color,
        )


def _draw_baseline(axes: Axes, run: RunCurves, name: str, *, color: str) -> None:
    starts, values = run.baselines[name]
    ends = [*starts[1:], max(run.end, starts[-1])]
    label: str | None = _short(f"{run.name}: {name.split('/', 1)[1]} of frequencies alone")
    for start, end, value in zip(starts, ends, values, strict=True):
        line: dict[str, Any] = {"linestyle": (0, (6, 3)), "linewidth": 1, "alpha": 0.8}
        axes.plot([start, end], [value, value], color=color, label=label, **line)
        label = None

"""Curves as pictures: a panel for each kind of metric, with phases and baselines."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from t5x_like.core import whole_files
from t5x_like.reporting.curves import RunCurves, choose, read_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = {"loss": "loss (nats)"}
_INK = "#123456"
"""Stands for the colour of the page's text."""
_COLOURS = ("#3d8fe0", "#e0703d", "#2fa866", "#a972d6", "#c9a227", "#d6568c", "#6f8fa8", "#8a9a3b")
"""Seen on white and on black."""
_MARKERS = "os^Dv<>P*Xphd8"
_LONGEST = 60
_LINE = 30
"""Characters of a line of the legend."""
_ENTRY = 0.17
"""Inches of a line of the legend."""


def plot(
    directories: Sequence[epath.PathLike], output: epath.PathLike, *, metrics: str | None = None
) -> None:
    """Draws curves of runs over their steps into one PNG file, each kind of metric in a panel.

    Training is a thin line, an evaluation a dashed line with marks, its baseline a dashed
    horizontal line that begins with a hollow mark, the begin of a phase a dotted vertical one. Each
    task has marks of its own. Of one run each task has its own colour, too; of several each run.

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
    return element(lambda: draw(runs, names, panel=4), salt=" ".join(names))


def element(make: Callable[[], Figure], *, salt: str) -> str:
    """A figure as an SVG element for a page, whose colour of text it takes.

    Args:
      make: makes the figure.
      salt: a text that is the same for the same picture: otherwise ids in it are random, and pages
        of the same run differ.
    """
    import matplotlib
    from matplotlib.rcsetup import cycler

    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings: Any = {
        "axes.prop_cycle": cycler("color", _COLOURS),
        **dict.fromkeys(inked, _INK),
        "grid.color": _INK,
        "legend.facecolor": "none",
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        # Names are anybody's: a dollar sign in one is not a formula.
        "text.parse_math": False,
    }
    written = io.StringIO()
    with matplotlib.rc_context(settings):
        make().savefig(written, format="svg", transparent=True, metadata={"Date": None})
    text = written.getvalue().replace(_INK, "currentColor")
    svg_element = text[text.index("<svg") :]
    # It is as wide as the page: its viewBox says how high that makes it.
    return re.sub(r' (width|height)="[\d.]+pt"', "", svg_element, count=2)


def draw(runs: Sequence[RunCurves], names: Sequence[str], *, panel: float = 5) -> Figure:
    """A figure with a panel of `panel` inches for each kind of the named metrics."""
    # The import is here because it takes a second. Without pyplot it does not look for a display.
    import matplotlib
    from matplotlib.figure import Figure

    panels: dict[str, list[str]] = {}
    for name in names:
        panels.setdefault(_kind(name), []).append(name)
    looks = _Looks(runs, names)
    # Names are anybody's: a dollar sign in one is not a formula.
    with matplotlib.rc_context({"text.parse_math": False}):
        figure = Figure(figsize=(10, panel * len(panels)), layout="constrained")
        for place, (kind, panel_names) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(
                len(panels), 1, place, xlabel="step", ylabel=_LABELS.get(kind, kind)
            )
            for run in runs:
                _draw_run(axes, run, panel_names, looks)
            axes.grid(alpha=0.3)
            lines = sum(text.count("\n") + 1 for text in axes.get_legend_handles_labels()[1])
            axes.legend(
                loc="upper left",
                bbox_to_anchor=(1.01, 1),
                borderaxespad=0,
                fontsize="small",
                ncols=1 + int(lines * _ENTRY / panel),
            )
    return figure


class _Looks:
    """How the curves of each run and task look, so that all of them can be told apart."""

    def __init__(self, runs: Sequence[RunCurves], names: Iterable[str]) -> None:
        self._runs = runs
        evaluations = (_task(name) for name in names if name.startswith("eval/"))
        self._tasks = [*dict.fromkeys(evaluations)]

    def color(self, run: RunCurves, task: str = "") -> str:
        """The colour of a curve of a run; that of its training where `task` is not a task."""
        place = self._place(run)
        if len(self._runs) == 1 and task in self._tasks:
            place = 1 + self._tasks.index(task)
        return f"C{place % len(_COLOURS)}"

    def marker(self, task: str) -> str:
        """The mark of a task."""
        return _MARKERS[self._tasks.index(task) % len(_MARKERS)]

    def label(self, run: RunCurves, what: str) -> str:
        """The label of a curve in the legend; it names the run only if there are several."""
        if len(self._runs) > 1:
            same = sum(other.name == run.name for other in self._runs) > 1
            number = f" ({self._place(run) + 1})" if same else ""
            what = f"{run.name}{number}: {what}"
        return "\n".join(textwrap.wrap(_short(what), _LINE)) or what

    def _place(self, run: RunCurves) -> int:
        return next(place for place, other in enumerate(self._runs) if other is run)


def _task(name: str) -> str:
    """The task of `eval/<task>/<metric>`, or `train`."""
    return name.rpartition("/")[0].removeprefix("eval/")


def _losses(runs: Sequence[RunCurves]) -> Iterable[str]:
    return dict.fromkeys(name for run in runs for name in run.losses())


def _short(text: str) -> str:
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return printable if len(printable) <= _LONGEST else printable[: _LONGEST - 3] + "..."


def _kind(name: str) -> str:
    last = name.rpartition("/")[2]
    return "loss" if last == "token_loss" else last


def _draw_run(axes: Axes, run: RunCurves, names: Sequence[str], looks: _Looks) -> None:
    several = len({name.rpartition("/")[2] for name in names}) > 1  # a loss has two names
    for name in names:
        if name not in run.values:
            continue
        task = _task(name)
        style: dict[str, Any] = {"linewidth": 1, "alpha": 0.7, "color": looks.color(run, task)}
        if name.startswith("eval/"):
            style |= {"linestyle": "--", "marker": looks.marker(task), "markersize": 4, "alpha": 1}
        what = f"{task} {name.rpartition('/')[2]}" if several else task
        axes.plot(*run.values[name], label=looks.label(run, what), **style)
        if name in run.baselines:
            _draw_baseline(axes, run, name, label=looks.label(run, f"{what} by frequency"), **style)
    for number, start in enumerate(run.phases, 2):
        axes.axvline(start, color=looks.color(run), linestyle=":", linewidth=1)
        axes.annotate(
            f" phase {number}",
            (start, 1),
            xycoords=("data", "axes fraction"),
            verticalalignment="top",
            fontsize="small",
            color=looks.color(run),
        )


def _draw_baseline(axes: Axes, run: RunCurves, name: str, **style: Any) -> None:
    starts, values = run.baselines[name]
    ends = [*starts[1:], max(run.end, starts[-1])]
    style |= {"linestyle": (0, (6, 3)), "markerfacecolor": "none", "markevery": [0], "alpha": 0.8}
    for start, end, value in zip(starts, ends, values, strict=True):
        axes.plot([start, end], [value, value], **style)
        style["label"] = None

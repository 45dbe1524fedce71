"""Loss curves of one or several runs, drawn from their `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etils import epath

from t5x_like.core.buckets import storage
from t5x_like.training.logs.metrics_file import METRICS_FILE, read_metrics

Curve = tuple[list[int], list[float]]


def losses(directory: epath.PathLike) -> dict[str, Curve]:
    """{name: (steps, values)} of a run's training loss and of the loss of each evaluation.

    Raises:
      ValueError: the run has logged no loss.
    """
    path = storage.path(directory) / METRICS_FILE
    if not path.exists():
        raise ValueError(f"No {METRICS_FILE} in {directory}: give the directory of a run.")
    curves: dict[str, Curve] = {}
    for line in read_metrics(path):
        for name, value in line.items():
            logged = name.startswith(("train/", "eval/")) and name.endswith(
                ("/loss", "/token_loss")
            )
            if logged and value is not None:
                steps, values = curves.setdefault(name, ([], []))
                steps.append(line["step"])
                values.append(value)
    if not curves:
        raise ValueError(f"{path} holds no loss yet: train a little longer.")
    return curves


def plot(directories: Sequence[epath.PathLike], output: epath.PathLike) -> None:
    """Draws the curves of runs over their steps into one PNG file.

    Training is a thin line, an evaluation a dashed line with dots; each run has one colour.

    Raises:
      ValueError: no directory was given, or one holds no loss.
    """
    if not directories:
        raise ValueError("Give the directory of at least one run.")
    runs = [(epath.Path(directory), losses(directory)) for directory in directories]
    # The import is here because it takes a second. Without pyplot it does not look for a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss per target (nats)")
    for index, (directory, curves) in enumerate(runs):
        for name, (steps, values) in curves.items():
            style: dict[str, Any] = (
                {"linewidth": 1, "alpha": 0.7}
                if name.startswith("train/")
                else {"linestyle": "--", "marker": "o", "markersize": 4}
            )
            label = f"{directory.name}: {name.rpartition('/')[0]}"
            axes.plot(steps, values, color=f"C{index % 10}", label=label, **style)
    axes.grid(alpha=0.3)
    axes.legend()
    output = epath.Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        figure.savefig(file, format="png", dpi=120)

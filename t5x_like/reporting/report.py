"""The report of one run or several: a page that needs no other file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from etils import epath

from t5x_like.reporting import drawing
from t5x_like.reporting.markup import count, duration, heading, page, share, short, table
from t5x_like.reporting.run_files import RunFiles, read_run
from t5x_like.reporting.samples import about_samples
from t5x_like.reporting.sections import about_run
from t5x_like.reporting.sweep_page import sweep_page
from t5x_like.sweeps.trials import is_sweep
from t5x_like.training.logs.energy import Assumptions, energy

_CURVES = (
    ("Learning rate", "train/learning_rate"),
    ("Norm of the gradient", "train/grad_norm"),
    ("Throughput", "train/tokens_per_second"),
)


def report(
    directories: Sequence[epath.PathLike],
    given: Assumptions,
    *,
    samples: int = 0,
    modules: Collection[str] = (),
    allow_paths: bool = False,
) -> str:
    """The page about runs, or about a sweep.

    Args:
      directories: their directories, or that of a sweep alone.
      given: what the site takes and emits.
      samples: the held-out rows of a phase that are shown with the model's answers. For 0, no
        checkpoint is read and no device is used.
      modules: modules that the configurations may name, if there are samples.
      allow_paths: whether text outside of the directories may be read for samples, although this
        account has not trained with it.

    Raises:
      ValueError: a directory holds nothing of a run, or a sweep stands beside others.
    """
    if any(is_sweep(Path(directory)) for directory in directories):
        if len(directories) > 1:
            raise ValueError("a report is about one sweep, or about runs: name the sweep alone")
        return sweep_page(Path(directories[0]))
    runs = [read_run(directory) for directory in directories]
    title = ", ".join(run.name for run in runs)
    parts = [_numbers(runs, given), *_curves(runs)]
    for run in runs:
        shown: Sequence[str] = ()
        if samples:
            shown = about_samples(run.directory, samples, modules=modules, allow_paths=allow_paths)
        parts += about_run(run, given, shown)
    return page(f"Report of {title}", parts)


def _numbers(runs: Sequence[RunFiles], assumptions: Assumptions) -> str:
    """The numbers of runs beside each other."""
    rows: dict[str, Callable[[RunFiles], str]] = {
        "status": lambda run: str(run.numbers.get("status", "")),
        "steps": _steps,
        "parameters": lambda run: count(run.number("parameters")),
        "tokens": lambda run: count(run.number("tokens")),
        "rows": lambda run: count(run.number("rows")),
        "FLOPs of the model": lambda run: short(run.number("flops"), "FLOPs"),
        "wall time": lambda run: duration(run.number("wall_seconds")),
        "goodput": lambda run: share(run.number("goodput")),
        "tokens a second": lambda run: count(run.number("tokens_per_second")),
        "steps a second": lambda run: short(run.number("steps_per_second")),
        "MFU": lambda run: share(run.number("mfu")),
        "peak memory of a device": lambda run: short(run.number("memory", "device"), "B"),
        "peak memory of host 0": lambda run: short(run.number("memory", "host"), "B"),
        "energy": lambda run: short(_energy(run, assumptions, "kwh"), "Wh"),
        "emissions": lambda run: short(_energy(run, assumptions, "kg_co2e"), "g CO2e"),
    }
    cells = [(name, *(of(run) for run in runs)) for name, of in rows.items()]
    return table(
        [row for row in cells if any(row[1:])],
        header=("", *(run.name for run in runs)) if len(runs) > 1 else (),
    )


def _steps(run: RunFiles) -> str:
    done = run.number("steps")
    whole = run.number("train_steps")
    if done is None:
        return f"{run.curves.end:,} by metrics.jsonl" if run.curves.end else ""
    return f"{done:,.0f} of {whole:,.0f}" if whole else count(done)


def _energy(run: RunFiles, assumptions: Assumptions, name: str) -> float | None:
    value = energy(run.starts, assumptions)[name]
    return None if value is None else 1000 * value


def _curves(runs: Sequence[RunFiles]) -> Iterator[str]:
    """Losses, each metric of evaluations whoever made it, and what training alone logs."""
    curves = [run.curves for run in runs]
    losses = [name for run in curves for name in run.losses()]
    names = dict.fromkeys(name for run in curves for name in run.values)
    panels = {"Loss": losses}
    for metric in dict.fromkeys(n.rpartition("/")[2] for n in names if n.startswith("eval/")):
        same = [name for name in names if name.rpartition("/")[2] == metric]
        if not {*same} & {*losses}:
            panels[metric] = same
    panels |= {title: [name] for title, name in _CURVES if name in names}
    for title, panel in panels.items():
        if panel:
            yield heading(title)
            yield drawing.svg(curves, [*dict.fromkeys(panel)])

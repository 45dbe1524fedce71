"""Runs the cells of the fine-tuning study, each a sweep over seeds, and measures them."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import recorded
from finetuning_data import rows_kept
from finetuning_pretraining import T5X_LIKE, Study, source
from finetuning_settings import (
    BODIES,
    EPOCHS_OF_METHODS,
    METHODS,
    ROWS_OF_METHODS,
    TASKS,
    Cell,
)

from t5x_like.core import whole_files
from t5x_like.sweeps.results import Result
from t5x_like.sweeps.table import Table

FILES = "data"
"""The folder of prepared files, in that of work."""
_POLL = 1.0
Line = dict[str, Any]


def command(study: Study, cell: Cell, seeds: int) -> tuple[str, ...]:
    """The sweep of a cell, in the folder of work."""
    task = TASKS[cell.task]
    files = [word.format(data=study.work / FILES) for word in task.flags]
    begun = source(cell.body, trained=cell.trained)
    of_body = BODIES[cell.body].tuning
    return (
        *(*T5X_LIKE, "sweep", begun, *files, *task.more),
        *(task.of_t5 if cell.body == "t5" else ()),
        *(of_body if cell.part == "tasks" else ()),
        *(
            _of_method(study, cell)
            if cell.part == "methods"
            else ("--epochs", str(task.epochs[cell.body]))
        ),
        *("--seeds", str(seeds), "--model_dir", f"sweeps/{cell.name}", "--cache_dir", "cache"),
    )


def _of_method(study: Study, cell: Cell) -> tuple[str, ...]:
    way = METHODS[cell.method]
    rows = rows_kept(ROWS_OF_METHODS, "train", study.share)
    return (
        *(*way.flags, "--grid", f"learning_rate={','.join(map(str, way.rates))}"),
        *("--epochs", str(EPOCHS_OF_METHODS), "--examples", str(rows)),
        *(() if way.teacher is None else ("--teacher", _best_run(study, cell, way.teacher))),
    )


def _best_run(study: Study, cell: Cell, method: str) -> str:
    """The best run of another method, seen from the folder of work."""
    other = Cell(cell.part, cell.body, cell.task, METHODS[method].pretrained, method)
    table = Table.read(study.work / "sweeps" / other.name)
    best = table.best[0].best
    assert best is not None
    return str(Path(table.run(best)).relative_to(study.work))


def run(study: Study, cell: Cell, seeds: int, *, ended: Callable[[Line], None]) -> None:
    """Makes all runs of a cell that have not ended, and tells of each one when it ends.

    Args:
      study: the study.
      cell: the cell.
      seeds: how many seeds.
      ended: called with the line of each run; of one that ended before, too.

    Raises:
      CommandError: the sweep failed.
    """
    told: set[str] = set()

    def tell() -> None:
        for result in results(study, cell):
            if result.trial not in told:
                told.add(result.trial)
                ended(line(study, cell, result))

    tell()
    if len(told) >= seeds * cell.runs:
        return
    words, log = command(study, cell, seeds), study.log(cell.name)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {recorded.command_text(words)}\n")
        file.flush()
        process = subprocess.Popen(words, cwd=study.work, stdout=file, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                tell()
                time.sleep(_POLL)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    tell()
    if process.returncode:
        raise recorded.CommandError(f"exit status {process.returncode}, see {log}")


def results(study: Study, cell: Cell) -> Iterator[Result]:
    """The trials of a cell that have ended."""
    folder = study.work / "sweeps" / cell.name
    if (folder / "sweep.json").exists():
        yield from Table.read(folder).results


def line(study: Study, cell: Cell, result: Result) -> Line:
    """What a run came to."""
    directory = study.work / "sweeps" / cell.name / "trials" / result.trial
    summary = whole_files.read_json(directory / "summary.json")
    metrics = named(result.metrics)
    return {
        "part": cell.part,
        "body": cell.body,
        "task": cell.task,
        "trained": cell.trained,
        "method": cell.method,
        "seed": result.seed,
        "setting": {k: x for k, x in result.setting.items() if k != "examples"},
        "metrics": {name: metrics.get(name) for name in TASKS[cell.task].metrics},
        "metric": result.value,
        "floor": result.floor,
        "failed": result.failed,
        "diverged": result.diverged,
        "steps": summary["steps"],
        "seconds_a_step": round(summary["seconds"]["steps"] / summary["steps"], 5),
        "seconds": {k: round(x, 2) for k, x in summary["seconds"].items() if x},
        "minutes": round(result.seconds / 60, 3),
        "hours": study.hours,
    }


def named(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics of an evaluation, by the names that all bodies share."""
    known = dict(metrics)
    if "exact_match" in known:  # a T5 writes the name of the class
        known.setdefault("accuracy", known["exact_match"])
    return known


def bytes_of(study: Study, cell: Cell) -> Line:
    """The bytes of a method, by `finetuning_memory.py` on the first run of its sweep."""
    table = Table.read(study.work / "sweeps" / cell.name)
    directory = table.run(table.results[0])
    script = Path(__file__).with_name("finetuning_memory.py")
    ended = subprocess.run(
        (sys.executable, str(script), directory), cwd=study.work, stdout=subprocess.PIPE, check=True
    )
    measured: Line = json.loads(ended.stdout)
    steps = [result for result in table.results if not result.diverged]
    seconds = [line(study, cell, result)["seconds_a_step"] for result in steps]
    return {
        "part": "bytes",
        "body": cell.body,
        "task": cell.task,
        "trained": cell.trained,
        "method": cell.method,
        "seconds_a_step": statistics.median(seconds),
        **measured,
        "hours": study.hours,
    }

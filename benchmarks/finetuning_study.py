"""Pretrains small models, fine-tunes them and random ones on ten tasks, and writes their page.

    python benchmarks/finetuning_study.py --data data --work study
    python benchmarks/finetuning_study.py --data data --work trial --minutes 10 --seeds 1 \\
        --results trial/results.jsonl
    python benchmarks/finetuning_study.py --page

`finetuning_settings.py` says what is run and for how long. Runs, caches and logs lie in the folder
--work, and the same command goes on with a study that was ended: a finished run is kept, and one
that was interrupted resumes. Each finished run is a line of --results, from which the page beside
it is made. What is done with a model is whole before the next is pretrained, so that a study may be
made in parts: the runs of a model are not needed any more when all its lines are there.

A shorter study reads fewer rows and pretrains for less time, and does not belong on the page.
`--only tasks-mrpc methods-lora` makes the cells whose names begin so, and no floors.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import finetuning_data
import finetuning_page
import finetuning_runs
import recorded
from finetuning_floors import FLOORS
from finetuning_pretraining import Study, fixed, measured, pretrain
from finetuning_settings import BODIES, HOURS, SEEDS, Cell, cells
from tqdm import tqdm

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results" / "finetuning.jsonl"
_RUN = ("part", "body", "task", "trained", "method", "seed", "setting")
Line = dict[str, Any]


class Results:
    """The lines of the study in a file, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = {self._key(line) for line in recorded.read(path)}

    def has(self, **of: Any) -> bool:
        """Whether there is a line of this run."""
        return self._key(of) in self._known

    def count(self, **of: Any) -> int:
        """How many lines have these fields, each of `_RUN`."""
        places = [(_RUN.index(name), str(value)) for name, value in of.items()]
        return sum(all(key[n] == value for n, value in places) for key in self._known)

    def add(self, line: Line) -> bool:
        """Adds a line, unless it is there; says whether it is new."""
        if self._key(line) in self._known:
            return False
        self._known.add(self._key(line))
        recorded.append(self._path, line)
        return True

    @staticmethod
    def _key(line: Line) -> tuple[str, ...]:
        return tuple(str(line.get(name)) for name in _RUN)

    def write_page(self) -> Path:
        """Writes the page beside the file."""
        path = self._path.with_suffix(".md")
        path.write_text(finetuning_page.page(recorded.read(self._path)), encoding="utf-8")
        return path


class Progress:
    """A bar of the planned minutes, with the time that is left at this pace."""

    def __init__(self, minutes: float) -> None:
        form = "{l_bar}{bar}| {elapsed} passed, {remaining} left{postfix}"
        self._bar = tqdm(total=minutes, bar_format=form, smoothing=0)

    def at(self, name: str) -> None:
        """Says what runs now."""
        self._bar.set_postfix_str(name)

    def passed(self, minutes: float, *, now: bool) -> None:
        """Notes that planned minutes are over, now or before this process began."""
        if not now:
            self._bar.initial += minutes  # of these no pace is known
        self._bar.update(min(minutes, self._bar.total - self._bar.n))

    def say(self, text: str) -> None:
        """Prints a line above the bar."""
        self._bar.write(text)


def planned_minutes(chosen: Iterable[Cell], seeds: int, *, share: float = 1.0) -> float:
    """The minutes of cells in a study of this share of the full length."""
    return sum(cell.minutes for cell in chosen) * seeds * share


def study(where: Study, results: Results, seeds: int, only: Sequence[str]) -> None:
    """Makes all that is missing."""
    chosen = [cell for cell in cells() if cell.name.startswith(tuple(only))]
    of_bodies = sum(BODIES[name].share for name in _bodies(chosen)) * where.hours * 60
    of_cells = planned_minutes(chosen, seeds, share=where.share)
    bar = Progress(of_bodies + of_cells)
    finetuning_data.prepare(where.data, where.work / finetuning_runs.FILES, where.share)
    if only == [""]:
        _floors(where, results, bar)
    failed = []
    for name in _bodies(chosen):
        missing = [
            cell for cell in chosen if cell.body == name and not _whole(cell, results, seeds)
        ]
        there = (cell for cell in chosen if cell.body == name and cell not in missing)
        bar.passed(planned_minutes(there, seeds, share=where.share), now=False)
        _pretrained(where, name, results, bar, needed=bool(missing))
        failed += [cell.name for cell in missing if not _cell(where, cell, results, seeds, bar)]
    results.write_page()
    if failed:
        sys.exit(
            f"These cells failed (logs/ says why; the same command tries them again): {failed}"
        )


def _pretrained(where: Study, name: str, results: Results, bar: Progress, *, needed: bool) -> None:
    """Pretrains a model, if runs of it are missing."""
    new = False
    if needed:
        bar.at(f"pretraining {name}")
        known = fixed(where, name)
        bar.say(f"{name}: {known['seconds_a_step']:.3f} s a step, so {known['steps']:,} steps")
        pretrain(where, name, known["steps"], trained=True)
        pretrain(where, name, 0, trained=False)
        new = results.add(measured(where, name, known))
    bar.passed(BODIES[name].share * where.hours * 60, now=new)


def _whole(cell: Cell, results: Results, seeds: int) -> bool:
    """Whether all lines of a cell are there."""
    about = _about(cell)
    runs = results.count(part=cell.part, **about) >= seeds * cell.runs
    return runs and (cell.part == "tasks" or results.has(part="bytes", **about))


def _about(cell: Cell) -> Line:
    return {"body": cell.body, "task": cell.task, "trained": cell.trained, "method": cell.method}


def _bodies(chosen: Sequence[Cell]) -> list[str]:
    return [name for name in BODIES if any(cell.body == name for cell in chosen)]


def _floors(where: Study, results: Results, bar: Progress) -> None:
    for task, (metrics_of, folder) in FLOORS.items():
        about = {"part": "floors", "body": finetuning_page.BAG, "task": task}
        if not results.has(**about):
            bar.at(f"floor of {task}")
            metrics = metrics_of(where.work / finetuning_runs.FILES / folder)
            results.add({**about, "metrics": metrics, "hours": where.hours})


def _cell(where: Study, cell: Cell, results: Results, seeds: int, bar: Progress) -> bool:
    """Makes the runs of a cell; False if they failed."""
    minutes = planned_minutes([cell], 1, share=where.share) / cell.runs

    def ended(line: Line) -> None:
        bar.passed(minutes, now=results.add(line))

    bar.at(cell.name)
    try:
        finetuning_runs.run(where, cell, seeds, ended=ended)
    except recorded.CommandError as error:
        bar.say(f"{cell.name} FAILED: {error}")
        return False
    if cell.part == "methods" and not results.has(part="bytes", **_about(cell)):
        results.add(finetuning_runs.bytes_of(where, cell))
    results.write_page()
    return True


def main() -> None:
    """Makes the runs that are missing, and the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets")
    parser.add_argument("--work", type=Path, default=Path("study"), help="folder of the runs")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float, default=HOURS, help=f"of the study: {HOURS:g}")
    length.add_argument("--minutes", type=float, help="the same in minutes, to try it")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of each cell: {SEEDS}")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--only", nargs="*", default=[""], help="the first letters of cells")
    parser.add_argument("--page", action="store_true", help="write the page of the lines there are")
    args = parser.parse_args()
    hours = args.hours if args.minutes is None else args.minutes / 60
    if args.page:
        print(Results(args.results).write_page())
        return
    if args.results == RESULTS and (hours < HOURS or args.seeds < SEEDS):
        parser.error("a shorter study does not belong on the page: name --results")
    args.work.mkdir(parents=True, exist_ok=True)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    work = args.work.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # and with it the command that runs
    # Runs of one shape share what is compiled, as far as their processes are not the same.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(work / "compiled"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    study(Study(args.data.resolve(), work, hours), Results(args.results), args.seeds, args.only)


if __name__ == "__main__":
    main()

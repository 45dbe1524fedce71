"""The report of a sweep: its table, a picture of its runs, and how to go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from t5x_like.core import whole_files
from t5x_like.reporting import sweep_drawing
from t5x_like.reporting.markup import duration, folded, heading, page, table, text
from t5x_like.sweeps import summary
from t5x_like.sweeps.summary import Summary
from t5x_like.sweeps.table import Table
from t5x_like.sweeps.trials import EXAMPLES, SWEEP_FILE, TASK

_EXPLAINED = (
    "Each dot is a run; a cross is one that was ended early, a bar the median of a setting, a "
    "dotted line the best that one answer to all texts reaches. A run's number is that of its best "
    "evaluation on the held-out rows, which have chosen it: rows that no run has seen give a lower "
    "one. With numbers of examples it is that of the only evaluation, at the end."
)


def sweep_page(directory: Path) -> str:
    """The page about the sweep in a folder.

    Raises:
      ValueError, OSError: its files cannot be read.
    """
    sweep = Table.read(directory)
    parts = [*_numbers(sweep)] if sweep.results else []
    about = whole_files.read_json(directory / SWEEP_FILE)["about"]
    notes = [f'<p class="note">{text(line)}</p>' for line in sweep.conclusions()]
    settings = [heading("Settings"), folded(SWEEP_FILE, json.dumps(about, indent=1))]
    return page(f"Sweep {directory.name}", [*notes, *parts, *settings])


def _numbers(sweep: Table) -> Iterator[str]:
    tasks: dict[object, list[Summary]] = {}
    for of in sweep.summaries:
        tasks.setdefault(of.setting.get(TASK), []).append(of)
    best = sweep.best
    for task, of_task in tasks.items():
        yield heading("Settings and seeds" if task is None else f"Settings and seeds of {task}")
        chosen = [n for n, of in enumerate(of_task) if any(of.setting == b.setting for b in best)]
        yield table(
            (of.cells() for of in of_task),
            header=summary.HEADER,
            numbers=True,
            best=chosen[0] if len(chosen) == 1 else None,
        )
        if all(EXAMPLES in of.setting for of in of_task):
            yield heading("By the number of training rows")
            yield sweep_drawing.curve(of_task, _all_rows(sweep, of_task))
        yield sweep_drawing.dots(of_task)
    yield f'<p class="faint">{text(_EXPLAINED)}</p>'
    yield heading("Runs")
    yield table(
        (
            (
                result.trial,
                "" if result.value is None else f"{result.value:.4f}",
                "" if result.step is None else result.step,
                "failed" if result.failed else "",
                "" if result.ended_early is None else result.ended_early,
                duration(result.seconds),
            )
            for result in sweep.results
        ),
        header=("run", "value", "step", "", "ended early at", "time"),
        numbers=True,
    )


def _all_rows(sweep: Table, of_task: list[Summary]) -> int | None:
    """The number of all training rows of a task, as the summary of such a run says it."""
    for of in of_task:
        for result in of.results:
            path = Path(sweep.run(result)) / "summary.json"
            if isinstance(of.setting[EXAMPLES], int) or not path.exists():
                continue
            phases = whole_files.read_json(path).get("phases") or [{}]
            rows = [of_text["rows"] for of_text in phases[0].get("texts", {}).values()]
            return sum(rows) if rows and None not in rows else None
    return None

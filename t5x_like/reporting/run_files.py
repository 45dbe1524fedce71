"""The content of a run's directory: all files of it that exist and are readable."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from etils import epath

from t5x_like.core.buckets import storage
from t5x_like.reporting.curves import RunCurves, curves_of, phase_starts
from t5x_like.training.checkpointing.ranking import BestMetric, saved_metrics
from t5x_like.training.logs import about
from t5x_like.training.logs.metrics_file import METRICS_FILE, lines_up_to
from t5x_like.training.logs.starts import STARTS_FILE, Start, read_starts, starts
from t5x_like.training.logs.summary import SUMMARY_FILE, summary
from t5x_like.training.logs.text_log import LOG_FILE

CONFIG_FILE = "config.gin"
_EVERY_STEP = 2**53
_BEST_METRIC = re.compile(r"^BEST_METRIC = ['\"](.*)['\"]$", re.MULTILINE)
_LOG_BYTES = 200_000

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFiles:
    """A run as its files tell it; the files may be anybody's.

    Attributes:
      directory: its directory.
      curves: of `metrics.jsonl`.
      evaluations: {step: {"<task>/<metric>": value}}.
      starts: those in `starts.jsonl`.
      numbers: the fields of `summary.json`, computed again if `starts.jsonl` is there.
      checkpoints: the saved steps and their metrics.
      best: the best of them; None if that is not known.
      config: the configuration as gin text; None if there is none.
      log: the end of `log.txt`; "" if there is none.
      missing: sentences about what is not there or damaged.
    """

    directory: str
    curves: RunCurves
    evaluations: Mapping[int, Mapping[str, float]]
    starts: Sequence[Start]
    numbers: Mapping[str, Any]
    checkpoints: Mapping[int, Mapping[str, float]]
    best: int | None
    config: str | None
    log: str
    missing: Sequence[str]

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.curves.name

    def number(self, *path: str) -> float | None:
        """A number of `numbers` by the names of its fields; None if it is not a number."""
        value: Any = self.numbers
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        return value if plain and abs(value) < 2.0**200 else None

    @property
    def about(self) -> Mapping[str, Any]:
        """The facts that are known (`about.known`)."""
        return about.known(self.numbers)


def read_run(directory: epath.PathLike) -> RunFiles:
    """The run in a directory.

    Raises:
      ValueError: there is nothing of a run.
      StorageError: the bucket cannot be read.
    """
    path = storage.path(directory)
    missing: list[str] = []

    def read(name: str, reader: Callable[[epath.Path], T], without: str) -> T | None:
        """The result of a reader for a file; None, and a sentence in `missing`, if it fails."""
        if not (path / name).exists():
            missing.append(f"There is no {name}: {without}.")
            return None
        try:
            return reader(path / name)
        except (OSError, ValueError, RecursionError) as error:
            missing.append(f"{name} cannot be read ({error}): {without}.")
            return None

    lines, damaged = read(METRICS_FILE, _all_lines, "no curves") or ([], 0)
    if damaged:
        missing.append(f"{damaged} damaged lines of {METRICS_FILE} are left out.")
    records = read(STARTS_FILE, read_starts, "no time by kind, and no restarts") or []
    written = read(SUMMARY_FILE, _object, "fewer numbers") or {}
    config = read(CONFIG_FILE, lambda file: file.read_text(), "no configuration")
    log = read(LOG_FILE, _end, "no messages") or ""
    all_starts = starts(records)
    saved = _checkpoints(path / "checkpoints")
    if not (lines or all_starts or written or config or saved):
        raise ValueError(f"{directory} holds nothing of a run: give its MODEL_DIR.")
    best = _best(saved, all_starts[-1].about if all_starts else about.known(written), config)
    numbers = written
    if all_starts:
        numbers = summary(
            all_starts,
            status=all_starts[-1].status or "running, or killed",
            checkpoints={"steps": [*saved], "best": best},
            memory=_numbers(written.get("memory")),
        )
    return RunFiles(
        directory=str(directory),
        curves=curves_of(path.name or str(path), lines, phase_starts(records)),
        evaluations=_evaluations(lines),
        starts=all_starts,
        numbers=numbers,
        checkpoints=saved,
        best=best,
        config=config,
        log=log,
        missing=missing,
    )


def _all_lines(file: epath.Path) -> tuple[list[dict[str, Any]], int]:
    return lines_up_to(file, _EVERY_STEP)


def _object(file: epath.Path) -> dict[str, Any]:
    content = json.loads(file.read_text())
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content


def _end(file: epath.Path) -> str:
    return file.read_bytes()[-_LOG_BYTES:].decode(errors="replace")


def _evaluations(lines: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, float]]:
    metrics_of: dict[int, dict[str, float]] = {}
    for line in lines:
        values = {name: value for name, value in line.items() if name.startswith("eval/")}
        if numbers := _numbers(values):
            metrics = metrics_of.setdefault(line["step"], {})
            metrics |= {name.removeprefix("eval/"): value for name, value in numbers.items()}
    return metrics_of


def _numbers(values: Any) -> dict[str, float]:
    """The values of a JSON object that are numbers of a usual size."""
    items = values.items() if isinstance(values, dict) else ()
    return {
        name: value
        for name, value in items
        if isinstance(value, int | float) and abs(value) < 2.0**200
    }


def _checkpoints(folder: epath.Path) -> dict[int, dict[str, float]]:
    """The saved steps, ascending, each with its metrics as far as they can be read."""
    metrics_of: dict[int, dict[str, float]] = {}
    for step in sorted(_saved_steps(folder)):
        metrics_of[step] = {}
        with contextlib.suppress(OSError, ValueError, RecursionError):
            metrics_of[step] = _numbers(saved_metrics(folder / str(step)))
    return metrics_of


def _saved_steps(folder: epath.Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name.isdecimal() and len(path.name) < 16 and (path / "metadata").exists():
                yield int(path.name)


def _best(
    saved: Mapping[int, Mapping[str, float]], facts: Mapping[str, Any], config: str | None
) -> int | None:
    named = _BEST_METRIC.search(config or "")
    try:
        metric = BestMetric.parse(facts.get("best_metric") or (named[1] if named else ""))
    except ValueError:
        return None
    ranks = {step: metric.rank(metrics) for step, metrics in saved.items()}
    ranked = {step: rank for step, rank in ranks.items() if len(rank) > 1}
    return min(ranked, key=lambda step: ranked[step]) if ranked else None

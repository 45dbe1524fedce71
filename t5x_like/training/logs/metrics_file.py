"""`metrics.jsonl`: what a run measured, a line of JSON each time, whatever happens to the file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from t5x_like.training.logs.growing_file import GrowingFile

METRICS_FILE = "metrics.jsonl"


class MetricsFile:
    """A `metrics.jsonl` that grows. Lines that cannot be written are kept for the next attempt."""

    def __init__(self, path: epath.Path) -> None:
        self._file = GrowingFile(path)

    def start(self, lines: list[dict[str, Any]]) -> None:
        """Makes the file hold these lines alone.

        Raises:
          OSError: it cannot be written now.
        """
        self._file.start("".join(f"{_text(line)}\n" for line in lines))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a line.

        Raises:
          OSError: it cannot be written now.
        """
        # JSON has no nan and no infinity; readers in other languages would fail there.
        finite = {k: (v if math.isfinite(v) else None) for k, v in values.items()}
        self._file.add(_text({"step": step, **finite}))

    def flush(self) -> None:
        """Writes lines that wait.

        Raises:
          OSError: they cannot be written now.
        """
        self._file.flush()


def read_metrics(path: epath.PathLike) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, without those that are damaged or incomplete."""
    return [line for line in _lines(path) if line is not None]


def lines_up_to(path: epath.Path, step: int) -> tuple[list[dict[str, Any]], int]:
    """The lines up to a step, and how many lines are damaged; none if there is no file.

    The last line does not count as damaged, because a killed process may leave it incomplete.

    Raises:
      OSError: the file cannot be read.
    """
    lines = list(_lines(path)) if path.exists() else []
    whole = [line for line in lines if line is not None and line["step"] <= step]
    return whole, lines[:-1].count(None)


def _lines(path: epath.PathLike) -> Iterator[dict[str, Any] | None]:
    """Each line of a file, None where it is none of ours."""
    for line in json_lines(path):
        yield line if _is_ours(line) else None


def json_lines(path: epath.PathLike) -> Iterator[Any]:
    """The value of each line of a file that is not empty; None for a damaged one."""
    for data in epath.Path(path).read_bytes().splitlines():
        if not data.strip():
            continue
        try:
            yield json.loads(data.decode())
        except (ValueError, RecursionError):
            yield None


def _is_ours(line: Any) -> bool:
    return (
        isinstance(line, dict)
        and isinstance(line.get("step"), int)
        and all(value is None or isinstance(value, int | float) for value in line.values())
    )


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, allow_nan=False)

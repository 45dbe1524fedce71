"""`starts.jsonl`: how far each start of a run came and where its time went, over all restarts."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from t5x_like.training.logs import about
from t5x_like.training.logs.growing_file import GrowingFile
from t5x_like.training.logs.ledger import KINDS, Ledger
from t5x_like.training.logs.metrics_file import json_lines

STARTS_FILE = "starts.jsonl"

Record = Mapping[str, Any]
"""A line. `start` is the number of the start, from 1; `step` the steps of the run at the `time`, in
seconds since 1970; `seconds`, `totals` and `rated` are those of the start's `Ledger`; `cpu_seconds`
are those of process 0; `joules` is what its GPUs have measured, if they do. The first line of a
start has `begun`, the time of its begin, and `about`, facts; its last has `status`, if it was not
killed."""

_COUNTS = ("seconds", "totals", "rated")
_SECONDS, _SHARE = 60.0, 0.01
"""A line comes after a minute, or sooner: after this share of the time since the start's begin."""


class StartsFile:
    """The file of a run that trains; this start adds to it."""

    def __init__(self, path: epath.Path, ledger: Ledger, step: int) -> None:
        """Reads what earlier starts have left. This one begins after `step` steps of the run.

        Raises:
          OSError: it cannot be read.
        """
        self.records: list[Record] = read_starts(path)
        self._file = GrowingFile(path)
        self._ledger, self._begun = ledger, step
        self.number = 1 + max((record["start"] for record in self.records), default=0)
        self._last = 0.0

    def add(self, **more: Any) -> None:
        """Adds a line about the time up to now, with more values.

        Raises:
          OSError: it cannot be written now.
        """
        seconds = self._ledger.seconds()
        record = {
            "start": self.number,
            "step": self._begun + int(self._ledger.totals["steps"]),
            "time": round(time.time(), 3),
            "seconds": {kind: round(value, 3) for kind, value in seconds.items()},
            "totals": dict(self._ledger.totals),
            "rated": dict(self._ledger.rated),
            **more,
        }
        self._last = sum(seconds.values())
        self.records.append(record)
        self._file.add(json.dumps(record))

    def due(self) -> bool:
        """Whether it is time for a line."""
        now = sum(self._ledger.seconds().values())
        return now - self._last >= min(_SECONDS, _SHARE * now)


@dataclasses.dataclass(frozen=True)
class Start:
    """One start of a run.

    Attributes:
      number: its number, from 1.
      begun: when it began, in seconds since 1970.
      last: when its last line was written.
      from_step: the steps of the run before it.
      to_step: the steps of the run at its last line.
      kept_step: those of its steps that no later start has taken again.
      status: how it ended; None if it was killed, or still runs.
      seconds: {kind: seconds} until its last line.
      totals: of the steps that count.
      rated: of the steps that count and were not compiled meanwhile.
      cpu_seconds: of process 0.
      joules: of the GPUs of process 0; None where they were not measured.
      about: the facts that it wrote down (`about.known`).
    """

    number: int
    begun: float
    last: float
    from_step: int
    to_step: int
    kept_step: int
    status: str | None
    seconds: Mapping[str, float]
    totals: Mapping[str, float]
    rated: Mapping[str, float]
    cpu_seconds: float
    joules: float | None
    about: Mapping[str, Any]


def read_starts(path: epath.Path) -> list[Record]:
    """The whole lines of a `starts.jsonl`; none if there is no file.

    Raises:
      OSError: it cannot be read.
    """
    if not path.exists():
        return []
    return [line for line in json_lines(path) if _is_ours(line)]


def starts(records: Sequence[Record]) -> list[Start]:
    """Each start that has lines, by number.

    Steps after the one from which a later start went on are lost: their time is of `restarts`.
    """
    lines = sorted(records, key=lambda record: record["start"])
    latest_first: list[Start] = []
    limit: float = math.inf
    for _, group in itertools.groupby(reversed(lines), lambda record: record["start"]):
        start = _start([*group][::-1], limit)
        limit = min(limit, start.from_step)
        latest_first.append(start)
    return latest_first[::-1]


def _start(lines: Sequence[Record], limit: float) -> Start:
    first, last = lines[0], lines[-1]
    last_kept = next((line for line in reversed(lines) if line["step"] <= limit), first)
    seconds = {kind: last["seconds"].get(kind, 0.0) for kind in KINDS}
    for kind in ("steps", "input_wait"):
        lost = seconds[kind] - last_kept["seconds"].get(kind, 0.0)
        seconds[kind] -= lost
        seconds["restarts"] += lost
    return Start(
        number=first["start"],
        begun=first.get("begun", first["time"] - sum(first["seconds"].values())),
        last=last["time"],
        from_step=first["step"],
        to_step=last["step"],
        kept_step=last_kept["step"],
        status=last.get("status"),
        seconds=seconds,
        totals=last_kept["totals"],
        rated=last_kept["rated"],
        cpu_seconds=last.get("cpu_seconds", 0.0),
        joules=last.get("joules"),
        about=about.known(first.get("about")),
    )


def _is_ours(line: Any) -> bool:
    return (
        isinstance(line, dict)
        and _is_step(line.get("start"))
        and _is_step(line.get("step"))
        and _is_number(line.get("time"))
        and all(_is_number(line.get(name, 0)) for name in ("begun", "cpu_seconds"))
        and (line.get("joules") is None or _is_number(line["joules"]))
        and isinstance(line.get("status", ""), str)
        and all(_are_numbers(line.get(name)) for name in _COUNTS)
    )


def _are_numbers(values: Any) -> bool:
    return isinstance(values, dict) and all(map(_is_number, values.values()))


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 2**53


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and -(2.0**200) < value < 2.0**200

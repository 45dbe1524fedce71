"""`summary.json`: a run in numbers, over all its starts."""

from __future__ import annotations

import collections
import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from t5x_like.core.devices.published import peak_flops
from t5x_like.training.logs.energy import Assumptions, energy
from t5x_like.training.logs.ledger import KINDS
from t5x_like.training.logs.starts import Start

SUMMARY_FILE = "summary.json"

_KNOWN = ("hosts", "versions", "code", "phases", "parameters", "train_steps", "best_metric")


def summary(
    starts: Sequence[Start],
    *,
    status: str,
    checkpoints: Mapping[str, Any],
    memory: Mapping[str, float],
) -> dict[str, Any]:
    """The numbers of a run, as JSON values; null where one is not known.

    Args:
      starts: all starts, by number; at least one.
      status: how the run ended, or "running".
      checkpoints: the saved `steps`, and the `best` of them.
      memory: the most bytes that were used, by what has them.
    """
    last = starts[-1]
    seconds = {kind: sum(start.seconds[kind] for start in starts) for kind in KINDS}
    rows, texts = _read(starts)
    return {
        "status": status,
        "written": utc(last.last),
        "steps": last.to_step,
        "unrecorded_steps": sum(part.end - part.begin for part in _parts(starts) if part.lost),
        **{name: last.about.get(name) for name in _KNOWN},
        "tokens": _total(starts, "tokens"),
        "rows": rows,
        "flops": _total(starts, "flops"),
        "texts": texts,
        "wall_seconds": sum(seconds.values()),
        "seconds": seconds,
        **rates(starts),
        "memory": dict(memory),
        "starts": [
            *(_described(start, start.status or "killed") for start in starts[:-1]),
            _described(last, status),
        ],
        "checkpoints": dict(checkpoints),
        "energy": energy(starts, Assumptions()),
    }


def rates(starts: Sequence[Start]) -> dict[str, float | None]:
    """Goodput, and what was done a second while steps ran, first steps of phases left out."""
    running = [(s, s.seconds["steps"] + s.seconds["input_wait"]) for s in starts]
    spent = sum(time for _, time in running)
    wall = sum(sum(start.seconds.values()) for start in starts)
    useful = sum(start.seconds["steps"] for start in starts)
    figures: dict[str, float | None] = {"goodput": useful / wall if wall else None}
    for name in ("steps", "tokens", "flops"):
        total = sum(start.rated.get(name, 0) for start in starts)
        figures[f"{name}_per_second"] = total / spent if spent and total else None
    could = sum(time * _peak(start) for start, time in running)
    done = sum(start.rated.get("flops", 0) for start in starts)
    figures["mfu"] = done / could if done and could else None
    return figures


def utc(seconds: float) -> str:
    """A time in seconds since 1970 as text."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(sep=" ", timespec="seconds")


def _peak(start: Start) -> float:
    """The peak FLOP/s of all devices of a start; 0 where it is not known."""
    peaks = [
        (peak_flops(host["device_kind"]) or 0) * host["devices"]
        for host in start.about.get("hosts", [])
    ]
    return sum(peaks) if all(peaks) else 0.0


def _total(starts: Sequence[Start], name: str) -> float | None:
    totals = [start.totals[name] for start in starts if name in start.totals]
    return sum(totals) if totals else None


class _Part(NamedTuple):
    """Steps that one start has taken; `lost` if no start has lines about them."""

    begin: int
    end: int
    start: Start
    lost: bool


def _parts(starts: Sequence[Start]) -> Iterator[_Part]:
    """The parts of a run; one without lines is counted as if the start after it had taken it."""
    at = 0
    for start in starts:
        if start.from_step > at:  # by a version that wrote no `starts.jsonl`, or it was lost
            yield _Part(at, start.from_step, start, True)
        yield _Part(start.from_step, start.kept_step, start, False)
        at = max(at, start.kept_step)


def _read(starts: Sequence[Start]) -> tuple[int | None, dict[str, Any]]:
    """The rows that were read, and {text: its tokens, rows of an epoch, rows read, epochs}."""
    rows = 0
    texts: dict[str, dict[str, Any]] = {}
    read: dict[str, float] = collections.defaultdict(float)
    epochs: dict[str, float] = collections.defaultdict(float)
    for part in _parts(starts):
        phases = part.start.about.get("phases", [])
        ends = [*(phase["start"] for phase in phases[1:]), math.inf]
        for phase, phase_end in zip(phases, ends, strict=False):
            steps = max(0, min(part.end, phase_end) - max(part.begin, phase["start"]))
            rows += steps * phase["batch_size"]
            for name, text in phase["texts"].items() if steps else ():
                texts[name] = {"tokens": text["tokens"], "rows_of_epoch": text["rows"]}
                rows_read = steps * phase["batch_size"] * text["share"]
                read[name] += rows_read
                epochs[name] += rows_read / text["rows"] if text["rows"] else math.nan
    for name, known in texts.items():
        known["rows"] = read[name]
        known["epochs"] = None if math.isnan(epochs[name]) else epochs[name]
    return (rows if texts else None), texts


def _described(start: Start, status: str) -> dict[str, Any]:
    return {
        "start": start.number,
        "begun": utc(start.begun),
        "last_line": utc(start.last),
        "from_step": start.from_step,
        "to_step": start.to_step,
        "lost_steps": start.to_step - start.kept_step,
        "status": status,
        "wall_seconds": sum(start.seconds.values()),
        "seconds": dict(start.seconds),
    }

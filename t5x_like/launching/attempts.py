"""Counts the starts of a launched run, and ends one that starts again without progress.

Every host runs `python -m t5x_like.launching.attempts MODEL_DIR ...` before `t5x_like train`. Its
exit status is `DONE` to go on, or `GAVE_UP`, after which no launcher starts the run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from etils import epath

from t5x_like.core import whole_files
from t5x_like.core.buckets import storage
from t5x_like.core.exit_status import DONE, GAVE_UP

RECORD = "launch_attempts.json"
"""The file of the model's directory that holds the steps of the starts."""


def newest_step(model_dir: epath.Path) -> int:
    """The step of the newest checkpoint; 0 if there is none."""
    folder = model_dir / "checkpoints"
    if not folder.exists():
        return 0
    return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=0)


def may_start(model_dir: epath.Path, *, launch: str, limit: int, first: bool) -> bool:
    """Whether the run may start once more; the first host also writes this start down.

    Args:
      model_dir: the model's directory, which all hosts share.
      launch: a text that differs between launches, whose starts are counted on their own.
      limit: how often the run may start again at the same step.
      first: whether this is the first host.
    """
    record = model_dir / RECORD
    known = _read(record)
    if known.get("launch") != launch:
        known = {"launch": launch, "starts": [], "gave_up": False}
    if not first:
        return not known["gave_up"]
    step = newest_step(model_dir)
    starts = [start for start in known["starts"] if start == step]
    known["gave_up"] = len(starts) > limit
    known["starts"] = starts if known["gave_up"] else [*starts, step]
    model_dir.mkdir(parents=True, exist_ok=True)
    whole_files.write(record, json.dumps(known).encode())
    if known["gave_up"]:
        print(
            f"error: the run started {len(starts)} times at step {step} and made no new checkpoint,"
            " so it is not started again. Its log says why it ended. If it was taken away each "
            "time, save more often; then start the launch again, which counts anew.",
            file=sys.stderr,
        )
    return not known["gave_up"]


def _read(record: epath.Path) -> dict[str, Any]:
    """The stored record; {} if it is missing or damaged, so that the count begins anew."""
    try:
        content = json.loads(record.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def main(argv: list[str] | None = None) -> int:
    """Counts a start; returns `DONE` or `GAVE_UP`."""
    parser = argparse.ArgumentParser(prog="t5x_like.launching.attempts")
    parser.add_argument("model_dir")
    parser.add_argument("--launch", required=True)
    parser.add_argument("--limit", type=int, required=True)
    parser.add_argument("--process", type=int, default=0)
    args = parser.parse_args(argv)
    allowed = may_start(
        storage.path(args.model_dir),
        launch=args.launch,
        limit=args.limit,
        first=args.process == 0,
    )
    return DONE if allowed else GAVE_UP


if __name__ == "__main__":
    sys.exit(main())

"""Records of launches, kept on this machine: a folder for each launch, without secrets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from t5x_like.core.spelling import nearest
from t5x_like.launching.commands import LaunchError

FOLDER = "T5X_LIKE_LAUNCHES"
"""The variable that names the folder of launches in place of ~/.t5x_like/launches."""


def folder() -> Path:
    """The folder of all launches."""
    return Path(os.environ.get(FOLDER) or Path.home() / ".t5x_like" / "launches").absolute()


def record(name: str) -> Path:
    """The file with the record of the launch of a name."""
    return folder() / name / "launch.json"


def exists(name: str) -> bool:
    """Whether there is a launch of this name."""
    return record(name).is_file()


def read(name: str) -> dict[str, Any]:
    """The record of the launch of a name.

    Raises:
      LaunchError: there is none.
    """
    if not exists(name):
        known = sorted(path.parent.name for path in folder().glob("*/launch.json"))
        raise LaunchError(
            f"nothing was launched as {name!r} from this machine ({folder()})"
            + nearest(name, known, of="launches")
        )
    launch: dict[str, Any] = json.loads(record(name).read_text(encoding="utf-8"))
    return launch

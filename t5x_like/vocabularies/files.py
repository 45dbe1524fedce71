"""Writing a vocabulary's files so that no reader ever sees half of one."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DESCRIPTION = "vocabulary.json"
MODEL = "vocabulary.model"


def write_atomically(path: Path, content: bytes) -> None:
    """Writes beside `path` and renames. Several processes may do so at once.

    Raises:
      OSError: the directory cannot be made or written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def save(directory: Path, fields: Mapping[str, Any], *, model: bytes | None = None) -> None:
    """Writes the model file if there is one, then the description, which marks a whole save."""
    if model is not None:
        write_atomically(Path(directory) / MODEL, model)
    write_atomically(Path(directory) / DESCRIPTION, json.dumps(dict(fields), indent=2).encode())

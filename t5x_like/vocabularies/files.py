"""Writes a vocabulary's files so that no reader ever sees half of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files
from t5x_like.core.protocols.data import Vocabulary

DESCRIPTION = "vocabulary.json"
MODEL = "vocabulary.model"
TOKENIZER = "tokenizer.json"


def write_atomically(path: Path, content: bytes) -> None:
    """Writes beside `path` and renames. Several processes may do so at once.

    Raises:
      OSError: the directory cannot be made or written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_files.write(path, content)


def save(
    directory: Path, fields: Mapping[str, Any], *, parts: Mapping[str, bytes] | None = None
) -> None:
    """Writes the parts, by file name, then the description, which marks a complete save."""
    for name, content in (parts or {}).items():
        write_atomically(Path(directory) / name, content)
    write_atomically(Path(directory) / DESCRIPTION, json.dumps(dict(fields), indent=2).encode())


def save_whole(vocabulary: Vocabulary, directory: Path) -> None:
    """Saves into a new directory, which appears when it is complete.

    Raises:
      OSError: the directory cannot be made, or already has files in it.
    """
    with whole_files.writing_folder(directory) as unfinished:
        vocabulary.save(unfinished)


def check_writable(path: Path, *, as_file: bool = False) -> None:
    """Makes the folder of `path` and, for a moment, a file beside it.

    Raises:
      OSError: that failed; or `path` is to be a file (`as_file`) and is a directory.
    """
    if as_file and path.is_dir():
        raise IsADirectoryError(
            f"{path} is a directory: name the file to write, such as {path / 'mine.model'}"
        )
    whole_files.check_writable(path.parent)

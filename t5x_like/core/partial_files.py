"""Results of long work beside the file that they become, so that a killed program goes on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from t5x_like.core import whole_files

SUFFIX = ".partial"


@dataclasses.dataclass(frozen=True)
class PartialFile:
    """Results so far, one JSON value a line; the first line says what they are results of.

    Attributes:
      file: the file that the results become.
      identity: JSON that differs where results would differ.
    """

    file: Path
    identity: Any

    @property
    def path(self) -> Path:
        """The file of the results so far."""
        return self.file.with_name(self.file.name + SUFFIX)

    def resume(self) -> list[Any]:
        """The results so far, without a last one that a kill cut; makes the file and its folder.

        Raises:
          ValueError: the results are of something else.
          OSError: the file cannot be written.
        """
        whole_files.check_writable(self.file.parent)
        header = _line(self.identity)
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")] or [header]
        if whole[0] != header:
            raise ValueError(
                f"{self.path} holds predictions of other inputs or settings: remove it, or name "
                "another output"
            )
        if whole != lines:
            whole_files.write(self.path, b"".join(whole))
        return [json.loads(line) for line in whole[1:]]

    def add(self, results: Iterable[Any]) -> None:
        """Appends results."""
        lines = b"".join(map(_line, results))
        opener = whole_files.not_through_link
        with whole_files.naming(self.path), open(self.path, "ab", opener=opener) as file:
            file.write(lines)

    def remove(self) -> None:
        """Removes the file, once the results are elsewhere."""
        self.path.unlink()


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"

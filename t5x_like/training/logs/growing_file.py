"""A text file that grows by lines, which are kept while it cannot be written."""

from __future__ import annotations

import os
import threading

from etils import epath

from t5x_like.core import whole_files

_CHUNK = 1 << 16


class GrowingFile:
    """A file on a disk; several threads may add lines."""

    def __init__(self, path: epath.Path) -> None:
        self._path = path
        self._waiting: list[str] = []
        self._whole: str | None = None
        self._checked = False
        self._lock = threading.RLock()

    def start(self, text: str) -> None:
        """Makes the file hold this text alone.

        Raises:
          OSError: it cannot be written now.
        """
        with self._lock:
            self._whole = text
            self._write()

    def add(self, line: str) -> None:
        """Adds a line, which has no end of line.

        Raises:
          OSError: it cannot be written now.
        """
        with self._lock:
            self._waiting.append(line + "\n")
            self._write()

    def flush(self) -> None:
        """Writes what waits.

        Raises:
          OSError: it cannot be written now.
        """
        with self._lock:
            self._write()

    def _write(self) -> None:
        if self._whole is not None:
            whole_files.write(self._path, self._whole.encode())
            self._whole, self._checked = None, True
        if not self._waiting:
            return
        if not self._checked:
            self._cut_back()
        try:
            with self._path.open("a") as file:
                file.write("".join(self._waiting))
        except OSError:
            self._checked = False
            raise
        self._waiting = []

    def _cut_back(self) -> None:
        """Removes a last line of which a killed process or a full disk took only a part."""
        if os.path.isfile(self._path):
            with open(self._path, "rb+") as file:
                end = file.seek(0, os.SEEK_END)
                place, newline = end, -1
                while place > 0 and newline < 0:
                    begin = max(place - _CHUNK, 0)
                    file.seek(begin)
                    newline = file.read(place - begin).rfind(b"\n")
                    place = begin
                if (whole := place + newline + 1) < end:
                    file.truncate(whole)
        self._checked = True

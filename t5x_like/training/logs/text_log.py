"""`log.txt`: what a run says to its user, with the time and the number of the start."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from etils import epath

from t5x_like.training.logs.growing_file import GrowingFile

LOG_FILE = "log.txt"


class TextLog:
    """The lines of one start. They wait until the file is named.

    A line is `2026-11-25 18:02:03 UTC  start 2  12.3 s  text`, with the seconds since its begin.
    """

    def __init__(self, begun: float) -> None:
        """`begun` is the time when the start began, in seconds since 1970."""
        self._begun = begun
        self._file: GrowingFile | None = None
        self._early: list[tuple[float, str]] = []
        self._number = 0

    def start(self, path: epath.Path, number: int) -> None:
        """Writes to a file from now on, as a start with this number.

        Raises:
          OSError: it cannot be written now.
        """
        early, self._early = self._early, []
        self._file, self._number = GrowingFile(path), number
        if early:
            self._file.add("\n".join(self._line(*early_line) for early_line in early))

    def add(self, text: str) -> None:
        """Adds a line, or several with one time.

        Raises:
          OSError: it cannot be written now.
        """
        now = time.time()
        if self._file is None:
            self._early.append((now, text))
        else:
            self._file.add(self._line(now, text))

    def flush(self) -> None:
        """Writes lines that could not be written before.

        Raises:
          OSError: they cannot be written now.
        """
        if self._file is not None:
            self._file.flush()

    def _line(self, now: float, text: str) -> str:
        date = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
        body = text.strip().replace("\n", "\n    ")
        return f"{date}  start {self._number}  {now - self._begun:.1f} s  {body}"


@contextlib.contextmanager
def listening(hear: Callable[[str], None]) -> Iterator[None]:
    """Hands on Python's warnings, and what is logged as one; both are shown as before."""
    shown = warnings.showwarning

    def show(message: Any, category: Any, filename: Any, lineno: Any, *more: Any, **k: Any) -> None:
        shown(message, category, filename, lineno, *more, **k)
        hear(warnings.formatwarning(message, category, filename, lineno))

    handler = _Handler(hear)
    warnings.showwarning = show
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
        if warnings.showwarning is show:  # else somebody else hands on to it
            warnings.showwarning = shown


class _Handler(logging.Handler):
    """Hands on what is logged, and shows it if nobody else would."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        self._hear(f"{record.levelname}: {record.name}: {self.format(record)}")
        # Python's own way out for records without any handler ends once there is one.
        if logging.root.handlers == [self] and logging.lastResort is not None:
            logging.lastResort.handle(record)

"""TensorBoard's files of a run, written at once and without a thread, which could die unseen."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class EventFiles:
    """The TensorBoard files of a directory on a disk; after an error, another file is begun."""

    def __init__(self, directory: Path, *, first_step: int) -> None:
        """Values that earlier files have for `first_step` and later steps are not shown."""
        self._directory, self._first_step = directory, first_step
        self._events, self._summary = _tensorboardx()
        self._writer: Any = None

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the values of a step.

        Raises:
          OSError: they cannot be written; they are lost.
        """
        try:
            if self._writer is None:
                self._directory.mkdir(parents=True, exist_ok=True)
                self._writer = _writer(self._directory, first_step=self._first_step)
            for name, value in values.items():
                if math.isnan(value):  # no point of a curve, and a warning of the library
                    continue
                summary = self._summary.scalar(name, value)
                event = self._events.Event(step=step, wall_time=time.time(), summary=summary)
                self._writer.write_event(event)
            self._writer.flush()
        except OSError:
            self._writer, self._first_step = None, step + 1
            raise

    def close(self) -> None:
        """Closes the file.

        Raises:
          OSError: the last values cannot be written.
        """
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def _writer(directory: Path, *, first_step: int) -> Any:
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto import event_pb2

    writer = EventsWriter(str(directory / "events"))
    begins = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    writer.write_event(event_pb2.Event(step=first_step, wall_time=time.time(), session_log=begins))
    return writer


def _tensorboardx() -> tuple[Any, Any]:
    """TensorBoard's events and summaries; imported here, for process 0 alone."""
    # tensorboardX imports PyTorch if it is installed, which takes seconds and is not needed.
    without_torch = "torch" not in sys.modules
    if without_torch:
        sys.modules["torch"] = None  # type: ignore[assignment]  # makes importing it an ImportError
    try:
        from tensorboardX import summary
        from tensorboardX.proto import event_pb2
    finally:
        if without_torch:
            del sys.modules["torch"]
    return event_pb2, summary

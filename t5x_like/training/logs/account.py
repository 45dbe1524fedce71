"""The account of this start of a run: lines of `starts.jsonl`, and `summary.json`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
from etils import epath

from t5x_like.core import whole_files
from t5x_like.training.hosts.gpu_energy import gpu_joules
from t5x_like.training.logs.ledger import Ledger
from t5x_like.training.logs.starts import STARTS_FILE, StartsFile, starts
from t5x_like.training.logs.summary import SUMMARY_FILE, summary


class Account:
    """The account of a start. Nothing is written before `open`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._joules = gpu_joules()
        self._cpu = time.process_time()
        self._about: Mapping[str, Any] = {}
        self._checkpoints: Callable[[], Mapping[str, Any]] = dict
        self._file: StartsFile | None = None

    def describe(
        self, about: Mapping[str, Any], checkpoints: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Sets the facts about the run that the files record, as `RunLog.describe`."""
        self._about, self._checkpoints = about, checkpoints

    def open(self, folder: epath.Path, step: int) -> int:
        """Continues the files of a folder after `step` steps; gives the number of this start.

        Raises:
          OSError: the file of an earlier start cannot be read.
        """
        self._folder = folder
        self._file = StartsFile(folder / STARTS_FILE, self._ledger, step)
        return self._file.number

    def begin(self) -> None:
        """Writes the first line.

        Raises:
          OSError: it cannot be written now.
        """
        self._add(begun=round(self._ledger.begun, 3), about=dict(self._about))

    def due(self) -> bool:
        """Whether it is time for a line."""
        return self._file is not None and self._file.due()

    def note(self, **more: str) -> None:
        """Writes a line about the time up to now; the last one with the `status` of the end.

        Raises:
          OSError: it cannot be written now.
        """
        self._add(**more)

    def summarise(self, status: str) -> None:
        """Writes `summary.json`.

        Raises:
          OSError: it cannot be written now.
        """
        assert self._file is not None  # for the type checker: `open` made it
        content = summary(
            starts(self._file.records),
            status=status,
            checkpoints=self._checkpoints(),
            memory=_peak_memory(),
        )
        text = json.dumps(content, indent=1) + "\n"
        whole_files.write(self._folder / SUMMARY_FILE, text.encode())

    def _add(self, **more: Any) -> None:
        assert self._file is not None  # for the type checker: `open` made it
        if self._joules is not None:
            more["joules"] = round(self._joules(), 1)
        self._file.add(cpu_seconds=round(time.process_time() - self._cpu, 3), **more)


def _peak_memory() -> dict[str, float]:
    """The most bytes that process 0 has used, on a device and on its host, where they are known."""
    peaks = {}
    device = [
        (local_device.memory_stats() or {}).get("peak_bytes_in_use")
        for local_device in jax.local_devices()
    ]
    if known := [size for size in device if size]:
        peaks["device"] = max(known)
    try:
        import resource
    except ImportError:  # not on Windows
        return peaks
    unit = 1 if sys.platform == "darwin" else 1024
    return peaks | {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}

"""Signals that ask a run to leave: SIGTERM, as clouds send it, and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from t5x_like.core import exit_status


@contextlib.contextmanager
def notice_of_leaving() -> Iterator[threading.Event]:
    """An event that SIGTERM or Ctrl-C sets without ending the process. A second signal ends it."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may set handlers
        return
    before: dict[int, Any] = {}

    def on_signal(signum: int, frame: Any) -> None:
        asked.set()
        for one, usual in before.items():
            signal.signal(one, usual)
        # Not through the log: the signal may arrive while the log writes.
        os.write(2, b"\nStopping: this step will be saved. A second signal stops without saving.\n")

    with _handling(signal.SIGINT, on_signal) as usual, _handling(signal.SIGTERM, on_signal):
        before |= {signal.SIGINT: usual, signal.SIGTERM: signal.SIG_DFL}
        yield asked


@contextlib.contextmanager
def leaving_before_training() -> Iterator[None]:
    """Until `notice_of_leaving`, SIGTERM ends the process with the status that starts it again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(signum: int, frame: Any) -> None:
        os.write(2, b"\nStopping before the first step: there is nothing to save.\n")
        raise SystemExit(exit_status.SAVED)

    with _handling(signal.SIGTERM, on_signal):
        yield


@contextlib.contextmanager
def _handling(number: signal.Signals, handler: Any) -> Iterator[Any]:
    """Has a handler for a signal for a while; gives the one before it."""
    before = signal.signal(number, handler) or signal.SIG_DFL
    try:
        yield before
    finally:
        signal.signal(number, before)

"""Signals that ask a run to leave: SIGTERM, as clouds send it, and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from t5x_like.core import exit_status


@contextlib.contextmanager
def notice_of_leaving() -> Iterator[threading.Event]:
    """An event that SIGTERM or Ctrl-C sets without ending the process. A second signal ends it."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may set handlers
        return
    second: dict[signal.Signals, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }

    def on_signal(signum: int, frame: Any) -> None:
        asked.set()
        for one, handler in second.items():
            signal.signal(one, handler)
        # Not through the log: the signal may arrive while the log writes.
        os.write(2, b"\nStopping: this step will be saved. A second signal stops without saving.\n")

    with _handling(dict.fromkeys(second, on_signal)):
        yield asked


@contextlib.contextmanager
def leaving_outside_training() -> Iterator[None]:
    """Outside of `notice_of_leaving`, a signal ends the process at once, with its exit status.

    Nothing is unwound, as with SIGTERM's own handler: an exception that a signal raises is lost in
    a finalizer, where Python drops it, and in a library's import, which makes another one of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    statuses = {signal.SIGINT: exit_status.INTERRUPTED, signal.SIGTERM: exit_status.SAVED}

    def on_signal(signum: int, frame: Any) -> None:
        os.write(2, b"\nStopping: outside of training there is nothing to save.\n")
        os._exit(statuses[signal.Signals(signum)])

    with _handling(dict.fromkeys(statuses, on_signal)):
        yield


@contextlib.contextmanager
def _handling(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Has handlers for signals for a while."""
    before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler or signal.SIG_DFL)

"""Signals that ask a run to leave: SIGTERM, as clouds send it, Ctrl-C, and a closed terminal's."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from t5x_like.core import exit_status

_USUAL: Mapping[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


_NAMES = {signal.SIGINT: "Ctrl-C"}


class Asked(threading.Event):
    """An event that a signal sets.

    Attributes:
      by_hand: whether the signal was that of Ctrl-C.
    """

    by_hand = False


@contextlib.contextmanager
def notice_of_leaving() -> Iterator[Asked]:
    """An event that a signal sets without ending the process. A second signal ends it."""
    asked = Asked()

    def on_signal(signum: int, frame: Any) -> None:
        asked.by_hand = signum == signal.SIGINT
        asked.set()
        for sig in signals:
            signal.signal(sig, _USUAL[sig])
        _say(
            f"Stopping after {_name(signum)}: this step will be saved. A second signal stops "
            "without saving."
        )

    with _handling(on_signal) as signals:
        yield asked


@contextlib.contextmanager
def leaving_outside_training() -> Iterator[None]:
    """Outside of `notice_of_leaving`, a signal ends the process at once, with its exit status.

    Nothing is unwound, as with SIGTERM's own handler: an exception that a signal raises is lost in
    a finalizer, where Python drops it, and in a library's import, which makes another one of it.
    """

    def on_signal(signum: int, frame: Any) -> None:
        _say(f"Stopping after {_name(signum)}: outside of training there is nothing to save.")
        os._exit(exit_status.INTERRUPTED if signum == signal.SIGINT else exit_status.SAVED)

    with _handling(on_signal):
        yield


@contextlib.contextmanager
def _handling(handler: Any) -> Iterator[list[signal.Signals]]:
    """Has a handler for signals for a while; gives those, which are none in a thread."""
    signals = []
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        # Under nohup a terminal may close.
        signals = [
            sig for sig in _USUAL if sig != signal.SIGHUP or signal.getsignal(sig) != signal.SIG_IGN
        ]
    before = {sig: signal.signal(sig, handler) for sig in signals}
    try:
        yield signals
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier or signal.SIG_DFL)


def _name(signum: int) -> str:
    return _NAMES.get(signal.Signals(signum), signal.Signals(signum).name)


def _say(text: str) -> None:
    """Writes to standard error, not through the log: the signal may come while the log writes."""
    with contextlib.suppress(OSError):
        os.write(2, f"\n{text}\n".encode())

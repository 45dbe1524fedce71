"""Ends a run that no longer moves, and shows where it stands still."""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from t5x_like.core import exit_status, progress
from t5x_like.training.hosts import joining

TIMES_USUAL = 20
"""A step may take this many times as long as is usual."""
OTHER_MINUTES = 120.0
"""How long nothing may move in other work: evaluating, saving, compiling, planning a pass."""
LEAVING_MINUTES = 10.0
"""How long a run may take to leave once it was asked to: the last save is bounded."""

_LOOK_SECONDS = 1.0


class Watchdog:
    """A thread that looks at what the run does; `step` tells it that a step was finished.

    A run moves if its step or the kind of its work changes, or a progress bar does. If nothing
    moves for too long, the stacks of all threads are printed, the other processes are told, and the
    process ends with `exit_status.STALLED`.

    Args:
      doing: says what kind of work the run does now (`ledger.KINDS`).
      minutes: how long a step may take, or `TIMES_USUAL` as long as is usual, if that is more; 0
        for no watching.
      asked: set when the run is asked to leave.
      clock: seconds, from any moment on.
    """

    def __init__(
        self,
        doing: Callable[[], str],
        *,
        minutes: float,
        asked: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._doing, self._minutes, self._asked, self._clock = doing, minutes, asked, clock
        self._step: int | None = None
        self._took: collections.deque[float] = collections.deque(maxlen=100)
        self._finished = self._moved = clock()
        self._seen: tuple[Any, ...] = ()
        self._leaving: float | None = None
        self._over = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watchdog]:
        """Watches while the block runs."""
        if not self._minutes:
            yield self
            return
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()

    def step(self, step: int) -> None:
        """The metrics of a step have been read."""
        now = self._clock()
        if self._step is not None:
            self._took.append(now - self._finished)
        self._step, self._finished = step, now

    def reason(self) -> str | None:
        """Why the run must end now; None while it moves."""
        now = self._clock()
        if self._asked.is_set():
            self._leaving = now if self._leaving is None else self._leaving
            if now - self._leaving > 60 * LEAVING_MINUTES:
                return f"it did not leave within {LEAVING_MINUTES:g} minutes"
        kind = self._doing()
        if (seen := (self._step, kind, progress.moves())) != self._seen:
            self._moved, self._seen = now, seen
        if now - self._moved <= (limit := self._limit(kind)):
            return None
        usual = f"; a step usually takes {self._usual():.3g} s" if self._took else ""
        return (
            f"nothing has moved for {limit / 60:.3g} minutes, in {kind!r} after step "
            f"{self._step or 0}{usual} (STALL_MINUTES)"
        )

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            if (why := self.reason()) is None:
                continue
            print(f"error: {why}. The stacks of all threads:", file=sys.stderr, flush=True)
            faulthandler.dump_traceback()
            joining.tell(why, exit_status.STALLED)
            os._exit(exit_status.STALLED)

    def _usual(self) -> float:
        return statistics.median(self._took)

    def _limit(self, kind: str) -> float:
        if kind != "steps":
            return 60 * max(OTHER_MINUTES, self._minutes)
        return max(60 * self._minutes, TIMES_USUAL * (self._usual() if self._took else 0))

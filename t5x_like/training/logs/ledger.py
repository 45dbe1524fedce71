"""Where the wall time of one start of a run goes: each moment belongs to one kind."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable, Iterator

KINDS = {
    "steps": "steps that count",
    "restarts": "steps that were taken again after a restart",
    "compile": "compiling, and the first step of each phase",
    "input_wait": "waiting for the next batch",
    "evaluation": "evaluation",
    "checkpoint": "saving",
    "startup": "start: data, checks, restoring or initialising",
}
"""The kinds of time. That of `restarts` is known only when a later start has begun."""


class Ledger:
    """The seconds of each kind since it was made, and totals of the steps.

    `totals` adds up the values of `count`; `rated` leaves out those that came while a step was
    compiled, so that its values over the seconds of `steps` and `input_wait` are rates. `begun` is
    the time when it was made, in seconds since 1970.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.begun = time.time()
        self._clock = clock
        self._mark = clock()
        self._kind = "startup"
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self.totals: dict[str, float] = collections.defaultdict(float)
        self.rated: dict[str, float] = collections.defaultdict(float)

    def kind(self) -> str:
        """The kind of the time now."""
        return self._kind

    def turn(self, kind: str) -> None:
        """From now on time is of this kind."""
        now = self._clock()
        self._seconds[self._kind] += now - self._mark
        self._mark, self._kind = now, kind

    @contextlib.contextmanager
    def spending(self, kind: str) -> Iterator[None]:
        """A context whose time is of this kind."""
        before = self._kind
        self.turn(kind)
        try:
            yield
        finally:
            self.turn(before)

    def seconds(self) -> dict[str, float]:
        """The seconds of each kind up to now."""
        self.turn(self._kind)
        return dict(self._seconds)

    def count(self, name: str, value: float) -> None:
        """Adds to a total, such as `steps` or `tokens`."""
        self.totals[name] += value
        if self._kind != "compile":
            self.rated[name] += value

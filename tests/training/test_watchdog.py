"""A run that stands still is ended; one that moves in any way is not."""

from __future__ import annotations

import subprocess
import sys
import threading

from t5x_like.core import exit_status, progress
from t5x_like.training.hosts.watchdog import (
    LEAVING_MINUTES,
    OTHER_MINUTES,
    TIMES_USUAL,
    Watchdog,
)

STILL = """
import threading, time
from t5x_like.training.hosts.watchdog import Watchdog

def stand_still():
    time.sleep(60)

with Watchdog(lambda: "steps", minutes=0.001, asked=threading.Event()).watching() as dog:
    dog.step(7)
    stand_still()
"""


class Time:
    """A clock that moves when it is told to."""

    def __init__(self, minutes: float = 10.0) -> None:
        self.now, self.kind, self.asked = 0.0, "steps", threading.Event()
        self.dog = Watchdog(
            lambda: self.kind, minutes=minutes, asked=self.asked, clock=lambda: self.now
        )

    def after(self, minutes: float) -> str | None:
        self.now += 60 * minutes
        return self.dog.reason()


def test_it_ends_the_process_and_shows_where_it_stands() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STILL], capture_output=True, text=True, check=False
    )
    assert done.returncode == exit_status.STALLED
    assert done.stderr.startswith("error: nothing has moved for")
    assert "in 'steps' after step 7" in done.stderr
    assert "in stand_still" in done.stderr


def test_steps_bars_and_other_work_are_moves() -> None:
    time = Time()
    for step in range(1, 4):
        time.dog.step(step)
        assert time.after(0.1) is None
    for _ in progress.bar(range(3), shown=False):
        assert time.after(9) is None
    for time.kind in ("evaluation", "steps"):
        assert time.after(9) is None
    reason = time.after(11)
    assert reason is not None
    assert "10 minutes, in 'steps' after step 3" in reason


def test_a_step_may_take_many_times_as_long_as_is_usual() -> None:
    time = Time()
    for step in range(5):
        time.dog.step(step)
        assert time.after(2) is None
    assert time.after(2 * TIMES_USUAL - 3) is None
    assert time.after(4) is not None


def test_other_work_has_more_time() -> None:
    time = Time()
    time.kind = "checkpoint"
    assert time.after(1) is None
    assert time.after(OTHER_MINUTES - 2) is None
    assert time.after(3) is not None


def test_leaving_is_bounded() -> None:
    time = Time()
    time.asked.set()
    for step in range(3):
        time.dog.step(step)
        assert time.after(LEAVING_MINUTES / 4) is None
    time.dog.step(3)
    reason = time.after(LEAVING_MINUTES)
    assert reason is not None
    assert "did not leave" in reason

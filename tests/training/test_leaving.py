"""A signal ends a process outside of training, wherever Python is."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from t5x_like.core import exit_status

AS_USUAL = """
import signal
import sys

signal.signal(int(sys.argv[1]), signal.SIG_DFL)  # the tests themselves may run under nohup
"""
IN_A_FINALIZER = """
import os
import sys
from t5x_like.training.hosts.leaving import leaving_outside_training

class Thing:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))

with leaving_outside_training():
    Thing()
"""


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, exit_status.SAVED),
        (signal.SIGHUP, exit_status.SAVED),
        (signal.SIGINT, exit_status.INTERRUPTED),
    ],
)
def test_a_signal_in_a_finalizer_ends_the_process(number: signal.Signals, status: int) -> None:
    """Python drops an exception that is raised there."""
    done = subprocess.run(
        [sys.executable, "-c", AS_USUAL + IN_A_FINALIZER, str(int(number))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    name = "Ctrl-C" if number == signal.SIGINT else number.name
    assert (
        done.stderr == f"\nStopping after {name}: outside of training there is nothing to save.\n"
    )


def test_under_nohup_a_closed_terminal_is_nothing() -> None:
    command = ["nohup", sys.executable, "-c", IN_A_FINALIZER, str(int(signal.SIGHUP))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Stopping" not in done.stderr

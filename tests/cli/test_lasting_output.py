"""Output that is lost: what is written to a closed pipe or a full disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WRITES = """
import sys
from t5x_like.cli.common.lasting_output import lasting_output

with lasting_output():
    for n in range(3):
        print(n, flush=True)
        print(n, file=sys.stderr)
sys.exit(7)
"""


def test_a_closed_pipe_stops_nothing() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITES], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    assert process.wait() == 7


def test_output_that_was_closed_stops_nothing() -> None:
    command = ["sh", "-c", 'exec "$0" -c "$1" >&- 2>&-', sys.executable, WRITES]
    assert subprocess.call(command) == 7


def test_a_full_disk_stops_nothing() -> None:
    with Path("/dev/full").open("w") as full:
        assert subprocess.call([sys.executable, "-c", WRITES], stdout=full, stderr=full) == 7


def test_what_can_be_written_is_written() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITES], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("0\n1\n2\n",) * 2

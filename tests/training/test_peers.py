"""Processes that watch each other: each test has processes of its own, without JAX."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import emulators
import jax
import pytest

from t5x_like.core import exit_status
from t5x_like.training.hosts import joining

MEMBER = """
import sys
from t5x_like.training.hosts.peers import MissingProcessError, Peers
port, count, process, start = map(int, sys.argv[1:])
peers = Peers("127.0.0.1", port, count=count, process=process, start_seconds=start, lost_seconds=4)
try:
    peers.join()
except MissingProcessError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_status)
print("joined", flush=True)
order = sys.stdin.readline().split(maxsplit=1)
if order == ["leave"]:
    peers.leave()
elif order == ["linger"]:
    peers.leave()
    print("lingers", flush=True)
    sys.stdin.readline()
elif order:
    peers.fail(order[1].strip(), int(order[0]))
    sys.exit(int(order[0]))
"""
Start = Callable[..., "subprocess.Popen[str]"]


@contextlib.contextmanager
def started(port: int, *, of: int, n: int, seconds: int = 60) -> Iterator[subprocess.Popen[str]]:
    """Process n of a run, which ends with the block, whatever it waits for."""
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, *map(str, (port, of, n, seconds))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(n, of=3)` starts process n of 3; all end with the test."""
    port = emulators.free_port()
    with contextlib.ExitStack() as ending:

        def one(n: int, *, of: int, seconds: int = 60) -> subprocess.Popen[str]:
            return ending.enter_context(started(port, of=of, n=n, seconds=seconds))

        yield one


def test_ports_in_use_are_named_with_their_flags() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"port {port} as the coordinator .*--coordinator_addr"):
            joining.check_free(port)
        with started(port, of=2, n=0) as first:
            _, said = first.communicate(timeout=60)
        assert f"port {port}, over which processes watch each other" in said
        assert "--watch_port" in said
    joining.check_free(port)


def test_where_jax_fails_in_joining_the_lost_process_is_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Process 0 was killed while JAX looked for its devices: the watch ends this one."""

    class Watch:
        def __init__(self, *args: object, **options: object) -> None:
            pass

        def join(self) -> None:
            pass

        def follow(self, seconds: float) -> None:
            raise SystemExit(exit_status.LOST)

    def initialize(**options: object) -> None:
        try:
            raise jax.errors.JaxRuntimeError("UNAVAILABLE: Socket closed")
        except jax.errors.JaxRuntimeError as error:
            raise RuntimeError("Unable to initialize backend 'cpu'") from error

    monkeypatch.setattr(joining, "Peers", Watch)
    monkeypatch.setattr(joining, "_joined", [])
    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(SystemExit) as left:
        joining.join(joining.Members("127.0.0.1:1", 2, 1))
    assert left.value.code == exit_status.LOST


ABORTED = """
import ctypes, os, signal, sys, threading, time
from pathlib import Path
from t5x_like.training.hosts import aborts
if "held" in sys.argv:
    aborts.wait_for_the_reason()
signal.signal(signal.SIGUSR1, lambda *_: None)
thread = threading.Thread(target=ctypes.CDLL(None).abort, daemon=True)
thread.start()
status = Path(f"/proc/self/task/{thread.native_id}/status")
handled = 1 << signal.SIGABRT - 1  # a signal is blocked while its handler runs
while not int(status.read_text().split("SigBlk:")[1].split()[0], 16) & handled:
    time.sleep(0.01)
while "awaited" in sys.argv:
    signal.pthread_kill(thread.ident, signal.SIGUSR1)  # ends the sleep before its time
    time.sleep(0.01)
time.sleep(0.1)
os._exit(17)
"""


@pytest.mark.parametrize(
    ("how", "status"),
    [(["held"], 17), (["held", "awaited"], -signal.SIGABRT), ([], -signal.SIGABRT)],
)
def test_an_abort_waits_so_that_a_process_may_leave_with_its_own_status(
    how: list[str], status: int
) -> None:
    """While C's `abort` waits Python goes on; after its time the process ends as it would have."""
    done = subprocess.run([sys.executable, "-c", ABORTED, *how], timeout=60, check=False)
    assert done.returncode == status


@pytest.mark.parametrize("program", ["silent", "talking", "closing"])
def test_another_program_at_the_port_is_not_taken_for_process_0(program: str) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]

        def answer() -> None:
            with contextlib.suppress(OSError):
                while program != "silent":
                    stranger, _ = taken.accept()
                    if program == "talking":
                        stranger.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    stranger.close()

        threading.Thread(target=answer, daemon=True).start()
        with started(port, of=2, n=1) as second:
            _, said = second.communicate(timeout=60)
        assert f"what listens at 127.0.0.1:{port} is not process 0" in said
        assert "--watch_port" in said
        taken.shutdown(socket.SHUT_RDWR)


def test_nobody_is_lost_while_all_wait_for_the_last(start: Start) -> None:
    """Longer than processes that train may be silent."""
    first, second = start(0, of=3), start(1, of=3)
    time.sleep(6)
    joined(first, second, start(2, of=3))


def order(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def joined(*processes: subprocess.Popen[str]) -> None:
    for one in processes:
        assert one.stdout is not None
        assert one.stdout.readline() == "joined\n"


def ends(process: subprocess.Popen[str], status: int) -> str:
    """What a process that must end with a status has printed as its error."""
    assert process.stderr is not None
    text = process.stderr.read()
    assert process.wait(60) == status, text
    return text


def test_all_leave_without_a_word(start: Start) -> None:
    members = [start(n, of=3) for n in range(3)]
    joined(*members)
    for n in (0, 2, 1):
        order(members[n], "leave")
    for one in members:
        assert ends(one, 0) == ""


@pytest.mark.parametrize("left", [True, False])
def test_who_has_left_ends_where_process_0_ends_before_it(start: Start, left: bool) -> None:
    """As where JAX waits for process 0 to shut down, and process 0 is killed."""
    members = [start(n, of=2) for n in range(2)]
    joined(*members)
    order(members[1], "linger")
    assert members[1].stdout.readline() == "lingers\n"
    if left:
        order(members[0], "linger")
        assert members[0].stdout.readline() == "lingers\n"
    members[0].send_signal(signal.SIGKILL)
    text = ends(members[1], exit_status.DONE if left else exit_status.LOST)
    assert ("process 0" in text) == (not left)


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_process_is_named_by_all_others(start: Start, lost: int, how: int) -> None:
    members = [start(n, of=3) for n in range(3)]
    joined(*members)
    members[lost].send_signal(how)
    for n in {0, 1, 2} - {lost}:
        text = ends(members[n], exit_status.LOST)
        assert text.startswith(f"error: process {lost} (")
        assert "is lost: " in text
        assert "resumes it" in text
        assert text.count("\n") == 1


@pytest.mark.parametrize("first", [0, 2])
def test_the_others_end_with_the_status_and_words_of_the_first(start: Start, first: int) -> None:
    members = [start(n, of=3) for n in range(3)]
    joined(*members)
    order(members[first], f"{exit_status.NO_ROOM} the disk is full")
    assert ends(members[first], exit_status.NO_ROOM) == ""
    for n in {0, 1, 2} - {first}:
        text = ends(members[n], exit_status.NO_ROOM)
        assert f"process {first} (" in text
        assert "failed: the disk is full" in text


def test_who_ends_because_another_failed_is_not_lost(start: Start) -> None:
    members = [start(n, of=3) for n in range(3)]
    joined(*members)
    order(members[2], f"{exit_status.NO_ROOM} the disk is full")
    assert ends(members[2], exit_status.NO_ROOM) == ""
    members[1].kill()  # process 0 still gives itself time for an error of its own
    assert "failed: the disk is full" in ends(members[0], exit_status.NO_ROOM)


def test_who_is_missing_at_the_start_is_named(start: Start) -> None:
    first, second = start(0, of=4, seconds=3), start(2, of=4, seconds=30)
    for one in (first, second):
        assert "process(es) 1, 3 of 4 are missing" in ends(one, exit_status.MISSING)
    late = start(1, of=4, seconds=2)
    assert "process 0 does not answer" in ends(late, exit_status.MISSING)


def test_a_process_that_restarts_while_others_are_awaited_is_welcome(start: Start) -> None:
    first, gone = start(0, of=3), start(1, of=3)
    gone.kill()
    gone.wait()
    again, last = start(1, of=3), start(2, of=3)
    joined(first, again, last)
    double = start(1, of=3)
    assert "process 1 is already here" in ends(double, exit_status.ERROR)
    for one in (first, again, last):
        order(one, "leave")
        assert ends(one, 0) == ""


@pytest.mark.parametrize("counts", [(2, 3), (3, 2)], ids=str)
def test_other_numbers_of_processes_are_refused_by_both(counts: tuple[int, int]) -> None:
    port = emulators.free_port()
    with started(port, of=counts[0], n=0) as first, started(port, of=counts[1], n=1) as second:
        for process in (first, second):
            _, said = process.communicate(timeout=60)
            assert process.returncode == exit_status.ERROR
            assert f"was started with --num_processes {counts[1]}, process 0 with" in said

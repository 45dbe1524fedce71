"""Processes and hosts that stop, vanish, come late or are cut off; disks that are full or fixed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cases import Cases
from tiny_run import Tiny, finish, losses, write_text

from t5x_like.core import exit_status

STEPS = {"TRAIN_STEPS": 40, "CHECKPOINT_PERIOD": 5, "EVAL_PERIOD": 10}
LONG = {**STEPS, "TRAIN_STEPS": 10**6}
_WAIT_SECONDS = 200


def run(cases: Cases) -> None:
    folder = cases.folder
    tiny = Tiny(folder, None, {"CORPUS": str(write_text(folder / "text.txt", 300))})
    for victim in (0, 2):
        for sign in (signal.SIGKILL, signal.SIGSTOP):
            name = f"{sign.name} of process {victim} of 4"
            cases.run(name, lambda victim=victim, sign=sign: lost(tiny, victim, sign))
    cases.run("one process of two is missing", lambda: missing(tiny))
    cases.run("one process of two comes late", lambda: late(tiny))
    cases.run("the network between two processes is cut", lambda: cut(tiny))
    cases.run("the disk is full at a checkpoint", lambda: full(tiny))
    cases.run("the run's folder cannot be written", lambda: immutable(tiny, "checkpoints"))
    cases.run("the cache cannot be written", lambda: fixed_cache(tiny))
    for hours in (-30, 30):
        cases.run(f"the clock jumps by {hours} hours", lambda hours=hours: jumped(tiny, hours))


def fresh(tiny: Tiny, name: str = "run") -> Path:
    run = tiny.root / name
    shutil.rmtree(run, ignore_errors=True)
    return run


def wait_for(ready: Callable[[], bool], *processes: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not ready():
        assert time.monotonic() < deadline, "it takes too long"
        for one in processes:
            assert one.poll() is None, one.communicate()[1][-2000:]
        time.sleep(0.1)


@contextlib.contextmanager
def ended(processes: list[subprocess.Popen[str]]) -> Iterator[None]:
    try:
        yield
    finally:
        for one in processes:
            one.kill()
            one.communicate()


def last_line(process: subprocess.Popen[str], status: int, *, seconds: float = 60) -> str:
    _, err = process.communicate(timeout=seconds)
    assert process.returncode == status, f"{process.returncode}: {err[-2000:]}"
    return [line for line in err.splitlines() if line.startswith("error: ")][-1]


def lost(tiny: Tiny, victim: int, sign: signal.Signals) -> str:
    run = fresh(tiny)
    processes = tiny.start_many(tiny.flags("run", "--lost_seconds=15", **LONG), count=4)
    with ended(processes):
        wait_for((run / "checkpoints" / "10").exists, *processes)
        processes[victim].send_signal(sign)
        begun = time.monotonic()
        for n, one in enumerate(processes):
            if n != victim:
                assert f"process {victim} (" in last_line(one, exit_status.LOST)
        took = time.monotonic() - begun
    assert took < 60, took
    finish(*tiny.start_many(tiny.flags("run", **STEPS), count=4))
    return "the others name it and leave with status 5 within a minute; resumed"


def missing(tiny: Tiny) -> str:
    fresh(tiny)
    alone = tiny.start_many(tiny.flags("run", "--start_seconds=10", **STEPS))
    with ended(alone):
        alone[1].kill()
        assert "process(es) 1 of 2 are missing" in last_line(alone[0], exit_status.MISSING)
    return "it is named, status 8"


def late(tiny: Tiny) -> str:
    fresh(tiny)
    processes = tiny.start_many(tiny.flags("run", **STEPS))
    with ended(processes):
        os.kill(processes[1].pid, signal.SIGSTOP)
        time.sleep(25)
        os.kill(processes[1].pid, signal.SIGCONT)
        (first, _) = finish(*processes)
    assert "Waits for process(es) 1 of 2" in first.err
    return "it is awaited and named; the run ends well"


def cut(tiny: Tiny) -> str:
    """Two network namespaces with a cable between them, which is then pulled."""
    run = fresh(tiny)
    names = ["t5x_like-a", "t5x_like-b"]
    made = [
        *(["ip", "netns", "add", name] for name in names),
        f"ip link add cable0 netns {names[0]} type veth peer name cable1 netns {names[1]}".split(),
        *(
            ["ip", "-n", name, *words.split()]
            for n, name in enumerate(names)
            for words in (
                f"addr add 10.213.7.{n + 1}/24 dev cable{n}",
                f"link set cable{n} up",
                "link set lo up",
            )
        ),
    ]
    try:
        for command in made:
            subprocess.run(command, check=True, capture_output=True, text=True)
        for n, name in enumerate(names):  # `ip netns exec` puts it in the place of /etc/hosts
            own = Path("/etc/netns") / name
            own.mkdir(parents=True, exist_ok=True)
            (own / "hosts").write_text(f"10.213.7.{n + 1} {socket.gethostname()}\n")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"not tried: this machine makes no network namespaces ({error})"
    try:
        joining = ["--distributed", "--coordinator_address=10.213.7.1:21000", "--num_processes=2"]
        argv = tiny.flags("run", *joining, "--lost_seconds=10", **LONG)
        processes = [
            tiny.start(
                [*argv, f"--process_id={n}"], devices=2, prefix=["ip", "netns", "exec", name]
            )
            for n, name in enumerate(names)
        ]
        with ended(processes):
            wait_for((run / "checkpoints" / "10").exists, *processes)
            subprocess.run(["ip", "-n", names[1], "link", "set", "cable1", "down"], check=True)
            for n, one in enumerate(processes):
                assert f"process {1 - n} (" in last_line(one, exit_status.LOST)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)
    finish(*tiny.start_many(tiny.flags("run", **STEPS)))
    return "both name the other and leave with status 5; resumed"


def full(tiny: Tiny) -> str:
    """A small disk of its own, filled while the run trains."""
    disk = tiny.root / "disk"
    disk.mkdir(exist_ok=True)
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(disk)],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        return f"not tried: this machine mounts no disk ({error})"
    try:
        run = disk / "run"
        (process,) = tiny.start_many(tiny.flags("run", **{**LONG, "MODEL_DIR": str(run)}), count=1)
        with ended([process]):
            wait_for((run / "checkpoints" / "10").exists, process)
            with contextlib.suppress(OSError), (disk / "rest").open("wb") as rest:
                while True:
                    rest.write(bytes(1 << 16))
            assert "No room" in last_line(process, exit_status.NO_ROOM)
        (disk / "rest").unlink()
        finish(*tiny.start_many(tiny.flags("run", **{**STEPS, "MODEL_DIR": str(run)}), count=1))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
    return "one sentence, status 6; resumed when there was room"


def immutable(tiny: Tiny, part: str) -> str:
    run = fresh(tiny)
    finish(*tiny.start_many(tiny.flags("run", **{**STEPS, "TRAIN_STEPS": 10}), count=1))
    if subprocess.run(["chattr", "+i", str(run / part)], check=False).returncode:
        return "not tried: this disk has no immutable folders"
    try:
        (stopped,) = finish(
            *tiny.start_many(tiny.flags("run", **STEPS), count=1), status=exit_status.ERROR
        )
        assert stopped.err.count("Traceback") == 0, stopped.err
        assert str(run) in stopped.err.splitlines()[-1]
    finally:
        subprocess.run(["chattr", "-i", str(run / part)], check=True)
    finish(*tiny.start_many(tiny.flags("run", **STEPS), count=1))
    return "a sentence that names it, status 1; resumed when it could be written"


def fixed_cache(tiny: Tiny) -> str:
    fresh(tiny)
    (result,) = finish(
        *tiny.start_many(tiny.flags("run", **{**STEPS, "CACHE_DIR": "/proc/t5x_like"}), count=1),
        status=exit_status.ERROR,
    )
    assert "Traceback" not in result.err
    assert "/proc/t5x_like" in result.err.splitlines()[-1]
    return "a sentence that names it, status 1"


def jumped(tiny: Tiny, hours: int) -> str:
    """The wall clock of the process jumps while it trains; nothing else moves."""
    run, usual = fresh(tiny), tiny.root / "straight"
    if not usual.exists():
        finish(*tiny.start_many(tiny.flags("straight", **STEPS), count=1))
    folder = tiny.root / "clock"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        f"import time\n_time, _begun = time.time, time.monotonic()\n"
        f"time.time = lambda: _time() + ({hours * 3600} if time.monotonic() - _begun > 8 else 0)\n"
    )
    paths = os.pathsep.join([str(folder), *sys.path[:1]])
    (result,) = finish(
        *tiny.start_many(tiny.flags("run", **STEPS), count=1, env=[{"PYTHONPATH": paths}])
    )
    assert losses(run) == losses(usual), result.err
    return "the same losses"

"""Two real processes over loopback, and one that is killed several times."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tiny_model as tiny

from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.hosts import multihost
from t5x_like.training.logs.metrics_file import read_metrics

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def start(script: list[str], devices: int) -> subprocess.Popen[str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, *script],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "XLA_FLAGS": os.environ["XLA_FLAGS"].replace("count=8", f"count={devices}"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def together(script: list[str], *, devices: int = 2) -> list[dict[str, Any]]:
    """The last line of each process, as JSON."""
    return finish([start(one, devices) for one in pair(script)])


def pair(script: list[str]) -> list[list[str]]:
    """The command lines of two processes that find each other."""
    port = str(free_port())
    return [[*script, "--process", str(n), "--processes", "2", "--port", port] for n in range(2)]


def finish(started: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    results = []
    try:
        for process in started:
            out, errors = process.communicate(timeout=240)
            assert process.returncode == 0, f"{out}\n{errors}"
            results.append(json.loads(out.splitlines()[-1]))
    finally:
        for process in started:
            process.kill()
    return results


def tiny_run(directory: Path, *flags: str) -> list[str]:
    return [str(HERE / "run_tiny.py"), str(directory), *flags]


def losses(directory: Path) -> list[float]:
    return [line["train/loss"] for line in read_metrics(directory / "metrics.jsonl")]


@functools.cache
def reference(steps: int, data: int) -> tuple[Any, list[float]]:
    """State and losses of the same run in this process, without the tensor axis."""
    where = tiny.layout(data=data)
    program = tiny.build(None, where, microbatches=2)
    state, found = program.init(jax.random.key(7)), []
    for n in range(steps):
        state, metrics = program.step(state, tiny.batch(where, n), jax.random.key(7))
        found.append(float(metrics["loss"][0] / metrics["loss"][1]))
    return state, found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "rows"),
    [
        ({"data": 2, "tensor": 2}, [range(8), range(8, 16)]),
        ({"tensor": 4}, [range(16), range(16)]),
    ],
    ids=["rows split", "tensor axis across processes"],
)
def test_two_processes_train_and_one_opens_their_checkpoint(
    tmp_path: Path, mesh: dict[str, int], rows: list[range]
) -> None:
    """One gets a signal at step 4: both save and stop at the same step, then resume."""
    script = tiny_run(tmp_path, "--mesh", json.dumps(mesh), "--steps", "9")
    first, second = pair(script)
    left = finish([start(one, devices=2) for one in (first, [*second, "--sigterm_at", "4"])])
    assert [one["status"] for one in left] == ["preempted", "preempted"]
    assert left[0]["step"] == left[1]["step"] < 9
    assert [one["rows"] for one in left] == [list(mine) for mine in rows]

    results = together(script)
    assert [(one["status"], one["step"]) for one in results] == [("finished", 9)] * 2
    want_state, want = reference(9, mesh.get("data", 1))
    np.testing.assert_allclose(losses(tmp_path), want, rtol=1e-4)

    program = tiny.build(None, tiny.layout(data=1), microbatches=2)
    restored = Checkpoints(tmp_path / "checkpoints").restore_latest(
        lambda _: program.abstract_state
    )
    assert restored is not None
    assert restored.step == 9
    for a, b in zip(
        jax.tree.leaves(restored.state.params), jax.tree.leaves(want_state.params), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    lists = sorted(p.name for p in (tmp_path / "checkpoints" / "9").glob("checksums.*"))
    assert lists == ["checksums.0of2.json", "checksums.1of2.json"]


@pytest.mark.slow
def test_killed_at_random_moments_the_run_ends_the_same(tmp_path: Path) -> None:
    moments = random.Random(0)
    script = tiny_run(tmp_path / "killed", "--steps", "30", "--delay", "0.1")
    for _ in range(6):
        process = start(script, devices=1)
        metrics = tmp_path / "killed" / "metrics.jsonl"
        began = len(read_metrics(metrics)) if metrics.exists() else 0
        # It runs some steps further than the last time, and a moment more: often inside a save.
        while process.poll() is None and (
            not metrics.exists() or len(read_metrics(metrics)) < min(began + 2, 29)
        ):
            time.sleep(0.02)
        time.sleep(moments.random() * 0.5)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    process = start(script, devices=1)
    assert process.communicate(timeout=240)[0], "it must end well"
    straight = start(tiny_run(tmp_path / "straight", "--steps", "30"), devices=1)
    assert json.loads(straight.communicate(timeout=240)[0])["status"] == "finished"

    program = tiny.build(None, tiny.layout(data=1), microbatches=2)
    ends = [
        Checkpoints(tmp_path / name / "checkpoints").restore_latest(
            lambda _: program.abstract_state
        )
        for name in ("killed", "straight")
    ]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0].step == ends[1].step == 30
    tiny.assert_same(ends[0].state, ends[1].state)
    assert losses(tmp_path / "killed") == losses(tmp_path / "straight")


JOINING = """
import argparse, json, pathlib, sys, time
import jax
parser = argparse.ArgumentParser()
parser.add_argument("directory")
for name in ("--process", "--processes", "--port"):
    parser.add_argument(name, type=int)
flags = parser.parse_args()
jax.distributed.initialize(f"localhost:{flags.port}", flags.processes, flags.process)
"""

AGREEING = """
from t5x_like.training.hosts import multihost
from t5x_like.training.hosts.agreement import agree

def failure(work):
    try:
        work()
    except multihost.ProcessError as error:
        return str(error)

def make(path=pathlib.Path(flags.directory, "made")):
    if not path.exists():
        path.write_text(str(flags.process))
    return path.read_text()

def break_down():
    if flags.process == 0:
        raise multihost.ProcessError("disk full")

vote = multihost.Vote()
result = {
    "shared": failure(lambda: multihost.check_shared(flags.directory)),
    "apart": failure(lambda: multihost.check_shared(f"{flags.directory}/{flags.process}")),
    "made": multihost.first_process_then_others("make", make),
    "broken": failure(lambda: multihost.first_process_then_others("break", break_down)),
    "votes": [bool(vote.cast(False)), bool(vote.cast(flags.process == 1))],
    "values": multihost.everywhere("flags", flags.process == 1).tolist(),
    "agreed": failure(lambda: agree("the configuration", ["A = 1", "B = 2"])),
    "differ": failure(lambda: agree("the configuration", ["A = 1", f"B = {flags.process}"])),
    "longer": failure(lambda: agree("the data", ["é"] * (1 + flags.process))),
}
if flags.process == 0:
    result["late"] = failure(lambda: multihost.barrier("vocabulary", timeout_s=1))
else:
    time.sleep(2)
multihost.barrier("end")
print(json.dumps(result))
"""


@pytest.mark.slow
def test_processes_agree_and_name_who_is_missing(tmp_path: Path) -> None:
    first, second = together(["-c", JOINING + AGREEING, str(tmp_path)], devices=1)
    assert first["shared"] is second["shared"] is None
    assert first["apart"].startswith(f"{tmp_path}/0 is not shared: process(es) [1]")
    assert second["apart"].startswith(f"{tmp_path}/1 is not shared: process(es) [1]")
    assert first["made"] == second["made"] == "0"
    assert first["broken"] == "disk full"
    assert second["broken"] == "Process 0 failed in 'break'; its log says why."
    assert first["votes"] == second["votes"] == [False, True]
    assert first["values"] == second["values"] == [False, True]
    assert "waited 1 s at 'vocabulary'. Missing process(es): 1." in first["late"]
    assert first["agreed"] is second["agreed"] is None
    assert first["differ"] == second["differ"]
    assert "the configuration of process(es) 1" in first["differ"]
    assert "process 0 has 'B = 0', process 1 'B = 1'" in first["differ"]
    assert "process 0 has 'nothing', process 1 'é'" in second["longer"]


READING = """
sys.path.insert(0, HERE)
import orbax.checkpoint as ocp
import tiny_model as tiny
from t5x_like.training.checkpointing.checkpoints import CheckpointError, Checkpoints
from t5x_like.training.hosts import multihost

program = tiny.build(None, tiny.layout(data=2))
checkpoints, state = Checkpoints(flags.directory, keep=4), program.init(jax.random.key(0))
for n in (1, 2, 3, 4):
    state, _ = tiny.run(program, tiny.layout(data=2), 1, state=state)
    checkpoints.save(n, state, metadata={})
checkpoints.close()
read = ocp.Checkpointer.restore

def found(error):
    def fail(self, directory, *args, **options):
        if flags.process == 1 and directory.parent.name == "4" and error:
            raise error
        return read(self, directory, *args, **options)

    ocp.Checkpointer.restore = fail
    try:
        return Checkpoints(flags.directory).restore_latest(lambda _: program.abstract_state).step
    except (CheckpointError, multihost.ProcessError) as failure:
        return str(failure)

errors = (None, OSError(5, "Input/output error"), ValueError("DATA_LOSS: of one process"), None)
result = {"found": [found(error) for error in errors]}
again = Checkpoints(flags.directory, keep=1)
again.prepare()
again.restore_latest(lambda _: program.abstract_state)
again.close()
print(json.dumps({**result, "kept": again.steps()}))
"""


@pytest.mark.slow
def test_processes_take_the_same_step_where_one_of_them_cannot_read(tmp_path: Path) -> None:
    script = JOINING + READING.replace("HERE", repr(str(HERE)))
    results = together(["-c", script, str(tmp_path)], devices=1)
    (first, second) = (one["found"] for one in results)
    assert first[1].startswith(f"process(es) 1 cannot read step 4 of {tmp_path}: see their logs")
    assert second[1].startswith(f"Step 4 of {tmp_path}: params cannot be read: OSError: [Errno 5]")
    assert [first[0], *first[2:]] == [second[0], *second[2:]] == [4, 3, 3]
    assert [one["kept"] for one in results] == [[3], [3]], "also what a kill left is removed"


def test_one_process_waits_for_nobody(tmp_path: Path) -> None:
    multihost.barrier("alone")
    multihost.check_shared(tmp_path / "not made")
    assert multihost.first_process_then_others("work", lambda: 3) == 3
    assert [multihost.Vote().cast(value) for value in (True, False)] == [True, False]
    assert multihost.everywhere("flags", True).tolist() == [True]
    with pytest.raises(KeyError):
        multihost.first_process_then_others("work", lambda: {}["missing"])

"""Signals at random moments of runs of two processes; the end equals an undisturbed run."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import Cases
from documents import write_documents
from tiny_run import Tiny, assert_same_state, finish, losses, write_text

from t5x_like.core import exit_status
from t5x_like.training.logs.metrics_file import read_metrics

KILLS = 34
STEPS = {"TRAIN_STEPS": 60, "CHECKPOINT_PERIOD": 5, "EVAL_PERIOD": 10, "LOG_PERIOD": 1}
RUNS: dict[str, dict[str, Any]] = {
    "t5": {"VOCABULARY": None, "VOCAB_SIZE": 100, "VOCAB_TYPE": "bpe"},
    "xlnet": {"recipe": "xlnet-mini", "VOCAB_SIZE": 500, "BATCH_SIZE": 8, "WARMUP_STEPS": 2},
    "bert": {
        "recipe": "bert-mini",
        "VOCAB_SIZE": 500,
        "BATCH_SIZE": 8,
        "WARMUP_STEPS": 2,
        "short/run.Phase.steps": 30,
    },
}
ASKING = (signal.SIGTERM, signal.SIGINT)
_ENDS = {
    signal.SIGKILL: (-signal.SIGKILL,),
    signal.SIGTERM: (-signal.SIGTERM, exit_status.SAVED),
    signal.SIGINT: (-signal.SIGINT, exit_status.SAVED, exit_status.INTERRUPTED),
}
"""Of processes that get a signal; Python itself handles one that comes while it starts."""
_OTHER_ENDS = (exit_status.DONE, exit_status.LOST, exit_status.MISSING)
_LEFT = (".tmp", ".orbax-checkpoint-tmp", ".partial")


def command(folder: Path, run: str, settings: dict[str, Any]) -> list[str]:
    """The command line of a run, and of its caches and vocabulary, which are its own."""
    given = {"MODEL_DIR": str(folder / run), "CACHE_DIR": str(folder / f"{run}-cache")}
    given |= {"CORPUS": str(folder / "text.txt"), **STEPS, **settings}
    recipe = given.pop("recipe", None)
    tiny = Path(__file__).parent.parent / "runs" / "tiny.gin"
    source = f"--recipe={recipe}" if recipe else f"--gin_file={tiny}"
    return ["train", source, *(f"--gin.{name}={value!r}" for name, value in given.items())]


def run(cases: Cases, name: str, signals: Sequence[signal.Signals] = (signal.SIGKILL,)) -> None:
    folder, settings = cases.folder, RUNS[name]
    tiny = Tiny(folder, None, {})
    text = folder / "text.txt"
    if not text.exists():
        write_documents(text) if "recipe" in settings else write_text(text, 600)
    straight = command(folder, "straight", settings)

    def undisturbed() -> str:
        begun = time.monotonic()
        finish(*tiny.start_many(straight))
        (folder / "seconds").write_text(str(time.monotonic() - begun))
        return "undisturbed"

    cases.run("undisturbed", undisturbed)
    if not cases.is_good("undisturbed"):
        return
    seconds = float((folder / "seconds").read_text())
    for n in range(KILLS):
        number = signals[n % len(signals)]
        cases.run(
            f"{number.name} {n}",
            lambda n=n, s=number: killed(tiny, folder, settings, n, seconds, s),
        )
    cases.run("the end", lambda: compared(tiny, folder, settings))


def killed(
    tiny: Tiny,
    folder: Path,
    settings: dict[str, Any],
    n: int,
    seconds: float,
    number: signal.Signals,
) -> str:
    """Ends one process or both; the run that is ended is begun anew when it is finished."""
    draw = random.Random(n)
    argv = command(folder, "killed", settings)
    # One that is killed before it listens is missing, not lost.
    processes = tiny.start_many([*argv, "--start_seconds=60"])
    try:
        deadline = time.monotonic() + draw.uniform(0.05, 1.0) * seconds
        while time.monotonic() < deadline and all(one.poll() is None for one in processes):
            time.sleep(0.02)
        victims = draw.choice([[0], [1], [0, 1]])
        step = last_step(folder / "killed")
        for victim in victims:
            processes[victim].send_signal(number)
        for one in processes:
            _, err = one.communicate(timeout=90)  # the others end within a minute
            ends = (*_ENDS[number], *_OTHER_ENDS)
            assert one.returncode in ends, f"{one.returncode}: {err[-2000:]}"
            assert number == signal.SIGINT or "Traceback" not in err, err[-2000:]
    finally:
        for one in processes:
            one.kill()
            one.communicate()
    left = orphans(folder)
    assert not left, f"processes are left: {left}"
    if any(one.returncode == 0 for one in processes):
        text = compared(tiny, folder, settings)
        for part in ("killed", "killed-cache"):
            shutil.rmtree(folder / part)
        return f"{number.name} at the end, {text}; begun anew"
    return f"{number.name} {'before the first step' if step == 0 else 'in training'}"


def compared(tiny: Tiny, folder: Path, settings: dict[str, Any]) -> str:
    """Ends the run that was killed, and compares it with the undisturbed one."""
    finish(*tiny.start_many(command(folder, "killed", settings)))
    rows = settings.get("BATCH_SIZE", 8)
    assert_same_state(folder / "killed", folder / "straight", rows=rows)
    assert losses(folder / "killed") == losses(folder / "straight")
    assert evaluations(folder / "killed") == evaluations(folder / "straight")
    stray = [
        str(path.relative_to(folder))
        for part in ("killed", "killed-cache")
        for path in (folder / part).rglob("*")
        if path.name.endswith(_LEFT)
    ]
    assert not stray, f"files are left: {stray}"
    return "equal to the last bit"


def evaluations(run: Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in line.items() if name.startswith(("step", "eval/"))}
        for line in read_metrics(run / "metrics.jsonl")
        if any(name.startswith("eval/") for name in line)
    ]


def last_step(run: Path) -> int:
    path = run / "metrics.jsonl"
    return max((line["step"] for line in read_metrics(path)), default=0) if path.exists() else 0


def orphans(folder: Path) -> list[str]:
    """Processes that name the folder, a few seconds after the last of ours has ended."""
    for _ in range(50):
        found = subprocess.run(
            ["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True
        )
        mine = [
            line
            for line in found.stdout.splitlines()
            if f"{folder}/killed" in line and str(os.getpid()) not in line.split()[:1]
        ]
        if not mine:
            return []
        time.sleep(0.2)
    return mine

"""Stand-ins for gcloud, kubectl, Slurm and ssh, which write down how they are called."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_like.cli import main

SECRET = "hunter2' $(touch leaked) `x`\nsecond line"

TAKE = """
def take(file):  # the first word of a file, which is removed unless it is the last
    with open(f"{file}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        left = file.read_text().split()
        # The file is whole whenever this process is killed.
        file.with_suffix(".new").write_text(" ".join(left[1:] or left))
        file.with_suffix(".new").replace(file)
    return left[0]
"""

RECORD = """#!{python}
import fcntl, json, os, pathlib, subprocess, sys
{take}
here = pathlib.Path({here!r})
name = pathlib.Path(sys.argv[0]).name
text = "" if sys.stdin.isatty() else sys.stdin.buffer.read()
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
with (here / "stdin").open("ab") as stdin:
    stdin.write(text)
failing = here / "fail"
if failing.exists() and failing.read_text() in " ".join(sys.argv):
    print(name, "says no", file=sys.stderr)
    sys.exit(7)

def on_host(host, script):
    home = here / "homes" / host
    home.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["bash", "-c", script], cwd=home, input=text,
                          env={{**os.environ, "HOME": str(home)}})
    sys.exit(done.returncode)

if name == "ssh":
    on_host(sys.argv[-2], sys.argv[-1])
if name == "gcloud":
    words = sys.argv[1:]
    if "describe" in words:
        state = take(here / "states")
        if state == "NONE":
            print("ERROR: NOT_FOUND", file=sys.stderr)
            sys.exit(1)
        print(state)
    if words[3:4] == ["ssh"]:
        flags = dict(w.split("=", 1) for w in words[5:] if "=" in w)
        on_host(words[4] + "-" + flags["--worker"], flags["--command"])
"""

PYTHON = """#!{python}
import fcntl, json, os, pathlib, signal, sys, time
{take}
here = pathlib.Path({here!r})
words = sys.argv[1:]
if words[:2] == ["-m", "t5x_like"] and "train" in words:
    def leave(*_):
        sys.exit(3)
    signal.signal(signal.SIGTERM, leave)
    shown = {{k: os.environ.get(k) for k in ("A", "HF_TOKEN")}}
    with (here / "trained").open("a") as file:
        file.write(json.dumps([words[2:], shown, os.getcwd()]) + "\\n")
    status = take(here / "statuses")
    while status == "run":
        time.sleep(0.05)
    sys.exit(int(status))
if words[:2] == ["-m", "t5x_like.launching.attempts"]:
    with (here / "attempted").open("a") as file:
        file.write(json.dumps(words[2:]) + "\\n")
"""


@dataclasses.dataclass
class Bench:
    """A working folder, hosts below `homes`, and what was called."""

    root: Path
    capture: Callable[[], tuple[str, str]]
    out: str = ""
    err: str = ""

    @property
    def wheel(self) -> Path:
        return self.root / "t5x_like-0.1.0-py3-none-any.whl"

    @property
    def environment(self) -> Path:
        return self.root / "env"

    @property
    def launches(self) -> Path:
        return self.root / "launches"

    def launch(self, *words: str) -> int:
        """The exit status of `t5x_like launch`; what it prints is in `out` and `err`."""
        try:
            status = main.main(["launch", *words])
        except SystemExit as left:
            status = int(left.code or 0)
        self.out, self.err = self.capture()
        assert "Traceback" not in self.err
        return status

    def calls(self, program: str = "") -> list[list[str]]:
        """The calls of the stand-ins so far."""
        found = self._lines("calls")
        return [call for call in found if program in ("", call[0])]

    def trained(self) -> list:
        """Arguments, variables and folder of every start of `train`."""
        return self._lines("trained")

    def attempted(self) -> list[list[str]]:
        return self._lines("attempted")

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def given(self) -> bytes:
        """All that was given to standard inputs."""
        file = self.root / "stdin"
        return file.read_bytes() if file.exists() else b""

    def _lines(self, name: str) -> list:
        file = self.root / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def wait(self, ready: Callable[[], object], seconds: float = 20) -> None:
        """Returns once `ready` holds."""
        deadline = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.05)


@pytest.fixture
def bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Bench]:
    made = Bench(tmp_path, lambda: tuple(capfd.readouterr()))
    filled = {"python": sys.executable, "here": str(tmp_path), "take": TAKE}
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("gcloud", "kubectl", "sbatch", "squeue", "scancel", "ssh", "docker"):
        (programs / name).write_text(RECORD.format(**filled))
        (programs / name).chmod(0o755)
    python = made.environment / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON.format(**filled))
    python.chmod(0o755)
    made.wheel.touch()
    made.write("states", "ACTIVE")
    made.write("statuses", "0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("T5X_LIKE_LAUNCHES", str(made.launches))
    monkeypatch.setenv("HF_TOKEN", SECRET)
    yield made
    for file in tmp_path.glob("homes/*/t5x_like_launches/*/*/pid"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(file.read_text()), signal.SIGKILL)


HOSTILE = [
    "--corpus=a b; touch leaked",
    "--gin.X='$(touch leaked)'",
    "`touch leaked`",
    'say "it"',
    "it's",
    "two\nlines\n",
    "",
    "$HOME",
    "$(A)",
    "-dash",
    "END",
    "\\",
    "*",
    "é",
]


@pytest.fixture
def hostile() -> list[str]:
    """Arguments that a shell would change if they were not quoted."""
    return list(HOSTILE)


@pytest.fixture
def secret() -> str:
    return SECRET

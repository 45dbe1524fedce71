"""Commands in processes that are forked from one that has imported everything: each starts at once.

Run as a program it is that process: it reads requests, each a line of JSON, and answers each with
the exit status of the command, or null if it did not end in time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from tiny_run import ROOT, Result

SECONDS = 60
"""After so long a command is killed."""


class Warm:
    """A process that runs commands in children of its own."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process, self._folder = process, folder

    def run(self, *argv: str) -> Result | None:
        """What a command returns and prints; None if it does not end."""
        out, err = self._folder / "stdout", self._folder / "stderr"
        request = {"argv": argv, "out": str(out), "err": str(err)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = json.loads(self._process.stdout.readline())
        return None if status is None else Result(status, out.read_text(), err.read_text())


@contextlib.contextmanager
def warm(folder: Path, environment: Mapping[str, str]) -> Iterator[Warm]:
    """The process, with variables of its own, until the block ends."""
    path = [str(ROOT), str(ROOT / "tests" / "runs"), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, __file__],
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Warm(process, folder)
    finally:
        process.kill()
        process.communicate()


def _import_all() -> None:
    import matplotlib.font_manager  # noqa: F401  (it looks for fonts)
    import orbax.checkpoint  # noqa: F401

    for package in ("cli", "api", "runs", "training", "reporting", "planning"):
        module = importlib.import_module(f"t5x_like.{package}")
        for found in pkgutil.walk_packages(module.__path__, f"{module.__name__}."):
            if "child" not in found.name:  # those are programs
                importlib.import_module(found.name)


def _serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            _become(request)
        print(json.dumps(_status(child)), flush=True)


def _status(child: int) -> int | None:
    ended = os.pidfd_open(child)
    try:
        if not select.select([ended], [], [], SECONDS)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
    finally:
        os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become(request: Mapping[str, object]) -> NoReturn:
    """Runs a command and ends as its program would."""
    from t5x_like.cli import main

    for number, name in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        file = os.open(
            str(name), os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        )
        os.dup2(file, number)
        os.close(file)
    sys.exit(main.main(request["argv"]))


if __name__ == "__main__":
    _import_all()
    _serve()

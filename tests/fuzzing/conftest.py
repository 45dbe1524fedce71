"""Damaged files of one kind after another, each opened by a process that may crash over it.

A file of tests here is about one reader: `make` writes folders of valid files, `read` opens such a
folder as a user would, and `damage` draws what becomes of it. `FUZZ_CASES=2000 pytest
tests/fuzzing -s` is the long form.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import hypothesis
import pytest
from hypothesis import strategies as st

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for `mutations`

CASES = int(os.environ.get("FUZZ_CASES", "25"))
SECONDS = 60
"""A case that takes longer hangs: the machine may be busy with other tests."""
_START = 300


@dataclasses.dataclass
class Child:
    """The process that opens files; a new one after a crash."""

    log: IO[str]
    process: subprocess.Popen[str] | None = None

    def ask(self, do: str, reader: str, folder: Path, *, seconds: float) -> dict[str, Any]:
        """Its answer, or what ended it."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", str(HERE / "child.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
            )
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        self.log.seek(0, os.SEEK_END)
        before = self.log.tell()
        request = {"do": do, "reader": reader, "folder": str(folder)}
        print(json.dumps(request), file=process.stdin, flush=True)
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if ready:  # it has closed its end
            process.wait(_START)
        self.end()
        self.log.seek(before)
        said = [line for line in self.log if "Error" in line or "Fatal" in line or "abort" in line]
        what = f"crash with status {process.returncode}" if ready else "hang"
        return {"what": what, "kind": what, "text": "".join(said[-2:])}

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@pytest.fixture(scope="session")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    with (tmp_path_factory.mktemp("fuzzing") / "log.txt").open("w+") as log:
        child = Child(log)
        yield child
        child.end()


@pytest.fixture
def fuzz(child: Child, tmp_path: Path) -> Callable[..., None]:
    """`fuzz(__file__, damage)`: asserts that each damaged folder is opened or refused by name."""
    if not sys.platform.startswith("linux"):
        pytest.skip("limits of memory are Linux's")

    def run(reader: str, damage: Callable[..., dict[str, bytes]]) -> None:
        seeds = tmp_path / "valid"
        seeds.mkdir()
        made = child.ask("make", reader, seeds, seconds=_START)
        assert made["what"] == "made", child.log.name
        valid = [_files(seed) for seed in sorted(seeds.iterdir())]
        counts: collections.Counter[str] = collections.Counter()
        failures: dict[str, list[str]] = {}

        @hypothesis.settings(
            derandomize=True,
            max_examples=CASES,
            deadline=None,
            database=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(st.data())
        def each(data: st.DataObject) -> None:
            number = data.draw(st.integers(0, len(valid) - 1))
            folder = tmp_path / f"case{sum(counts.values())}"
            _write(folder, damage(data.draw, valid[number]))
            answer = child.ask("read", reader, folder, seconds=SECONDS)
            counts[answer["what"]] += 1
            if answer["what"] in ("accepted", "refused"):
                shutil.rmtree(folder)
            else:
                found = failures.setdefault(answer["kind"], [])
                found.append(f"{folder}: {answer['text']}")

        each()
        print(f"\n{Path(reader).stem}: {sum(counts.values())} cases, {dict(counts)}")
        lines = [f"{len(found)} x {kind}: {found[0]}" for kind, found in failures.items()]
        assert not lines, "\n".join(lines)

    return run


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def _write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

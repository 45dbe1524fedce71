"""Damaged files of every reader, in large numbers (`tests/fuzzing`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cases import Cases

FUZZING = Path(__file__).parent.parent / "fuzzing"
CASES = "2000"


def run(cases: Cases) -> None:
    for file in sorted(FUZZING.glob("test_*.py")):
        cases.run(file.stem.removeprefix("test_"), lambda file=file: _fuzz(file))


def _fuzz(file: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        env={**os.environ, "FUZZ_CASES": CASES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return f"{CASES} cases: a message or success"

"""The scripts of `benchmarks`, which import one another by name."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS.parent / "benchmarks"), str(TESTS / "runs")]

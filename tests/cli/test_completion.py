"""Tab completes commands, flags and names of recipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("t5x_like tr", ["train"]),
        ("t5x_like train --rec", ["--recipe"]),
        ("t5x_like train --recipe bert_w", ["bert_wwm_large", "bert_wwm-mini"]),
    ],
)
def test_completion(line: str, words: list[str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    asked = {
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": ",",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "words"),
    }
    subprocess.run([sys.executable, "-m", "t5x_like"], env={**os.environ, **asked}, check=True)
    assert [one.strip() for one in (tmp_path / "words").read_text().split(",")] == words

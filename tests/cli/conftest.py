"""Fixtures of end-to-end tests: a text, a tiny run."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tiny_run import Result, Tiny

from t5x_like.cli import main

WORDS = "the of a module returns file text if not list value true python class raise".split()


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 documents, a line each."""
    return write_text(tmp_path_factory.mktemp("text") / "text.txt", 300)


def write_text(path: Path, documents: int) -> Path:
    draw = random.Random(documents)
    path.write_text("".join(" ".join(draw.choices(WORDS, k=12)) + ".\n" for _ in range(documents)))
    return path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """`cli("train", ...)`: what the command line returns and prints, in this process."""

    def run(*argv: str) -> Result:
        capsys.readouterr()
        try:
            status = main.main(list(argv))
        except SystemExit as left:
            status = int(left.code or 0)
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture
def tiny(text: Path, tmp_path: Path, cli: Callable[..., Result]) -> Tiny:
    """Runs of the tiny model on `text`; each in a directory of its own below `tmp_path`."""
    return Tiny(tmp_path, cli, {"CORPUS": str(text)})

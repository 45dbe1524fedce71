"""Needs of recipes in two processes, with the same results as in one: phases and memory.

A teacher, and a start from another run, are in `test_teacher.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from documents import write_documents
from tiny_run import Tiny, finish, losses

VOCABULARY = str(Path(__file__).parent / "golden" / "vocabulary")


def command(name: str, *, shared: Path, run: Path, macros: Mapping[str, Any]) -> list[str]:
    """Trains a recipe for four steps of eight rows."""
    given = {
        "CORPUS": str(shared / "text.txt"),
        "CACHE_DIR": str(shared / "cache"),
        "MODEL_DIR": str(run),
        "VOCABULARY": VOCABULARY,
        "TRAIN_STEPS": 4,
        "WARMUP_STEPS": 1,
        "BATCH_SIZE": 8,
        "LOG_PERIOD": 1,
        **macros,
    }
    return ["train", f"--recipe={name}", *(f"--gin.{k}={v!r}" for k, v in given.items())]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "macros"),
    [
        pytest.param(
            *("bert-mini", {"short/run.Phase.steps": 2}), id="phases", marks=pytest.mark.matrix
        ),
        pytest.param("xlnet-mini", {}, id="memory"),
    ],
)
def test_two_processes_train_as_one(name: str, macros: dict[str, Any], tiny: Tiny) -> None:
    write_documents(tiny.root / "text.txt")
    alone, two = (
        command(name, shared=tiny.root, run=tiny.root / run, macros=macros)
        for run in ("alone", "two")
    )
    done = tiny.cli(*alone)
    assert done.status == 0, done.err
    finish(*tiny.start_many(two))
    want = losses(tiny.root / "alone")
    assert sorted(want) == [1, 2, 3, 4]
    assert losses(tiny.root / "two") == pytest.approx(want, rel=1e-4)

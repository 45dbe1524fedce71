"""What recipes ask of the loop, in two processes as in one: phases, memory, teacher, a start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from documents import write_documents
from tiny_run import Tiny, finish, losses

VOCABULARY = str(Path(__file__).parent / "golden" / "vocabulary")


def command(name: str, tiny: Tiny, run: str, macros: Mapping[str, Any]) -> list[str]:
    """Trains a recipe for four steps of eight rows."""
    text = tiny.root / "text.txt"
    if not text.exists():
        write_documents(text)
    given = {
        "CORPUS": str(text),
        "CACHE_DIR": str(tiny.root / "cache"),
        "MODEL_DIR": str(tiny.root / run),
        "TRAIN_STEPS": 4,
        "WARMUP_STEPS": 1,
        "BATCH_SIZE": 8,
        "LOG_PERIOD": 1,
        **macros,
    }
    return ["train", f"--recipe={name}", *(f"--gin.{k}={v!r}" for k, v in given.items())]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bert"),
    [
        ("bert-mini", None),
        ("xlnet-mini", None),
        ("distilbert-mini", "TEACHER_DIR"),
        ("legal_bert-mini", "INIT_DIR"),
    ],
    ids=["phases", "memory", "teacher", "start from another run"],
)
def test_two_processes_train_as_one(name: str, bert: str | None, tiny: Tiny) -> None:
    macros: dict[str, Any] = {} if bert else {"VOCABULARY": VOCABULARY}
    phased = {"VOCABULARY": VOCABULARY, "short/run.Phase.steps": 2}
    if name == "bert-mini":
        macros = phased
    if bert:
        teacher = tiny.cli(*command("bert-mini", tiny, "bert", phased))
        assert teacher.status == 0, teacher.err
        macros[bert] = str(tiny.root / "bert")
    alone = tiny.cli(*command(name, tiny, "alone", macros))
    assert alone.status == 0, alone.err
    finish(*tiny.start_two(command(name, tiny, "two", macros)))
    want = losses(tiny.root / "alone")
    assert sorted(want) == [1, 2, 3, 4]
    assert losses(tiny.root / "two") == pytest.approx(want, rel=1e-4)

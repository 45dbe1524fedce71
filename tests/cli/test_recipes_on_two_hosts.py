"""What recipes ask of the loop, in two processes as in one: phases, memory, teacher, a start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from documents import write_documents
from tiny_run import Tiny, finish, losses

from t5x_like.cli import main

VOCABULARY = str(Path(__file__).parent / "golden" / "vocabulary")


PHASED = {"VOCABULARY": VOCABULARY, "short/run.Phase.steps": 2}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, its cache, and a run of BERT that others follow."""
    folder = tmp_path_factory.mktemp("two_hosts")
    write_documents(folder / "text.txt")
    assert main.main(command("bert-mini", shared=folder, run=folder / "bert", macros=PHASED)) == 0
    return folder


def command(name: str, *, shared: Path, run: Path, macros: Mapping[str, Any]) -> list[str]:
    """Trains a recipe for four steps of eight rows."""
    given = {
        "CORPUS": str(shared / "text.txt"),
        "CACHE_DIR": str(shared / "cache"),
        "MODEL_DIR": str(run),
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
def test_two_processes_train_as_one(name: str, bert: str | None, shared: Path, tiny: Tiny) -> None:
    macros = {bert: str(shared / "bert")} if bert else {"VOCABULARY": VOCABULARY}
    alone, two = tiny.root / "alone", tiny.root / "two"
    if name == "bert-mini":
        macros, alone = PHASED, shared / "bert"
    else:
        done = tiny.cli(*command(name, shared=shared, run=alone, macros=macros))
        assert done.status == 0, done.err
    finish(*tiny.start_two(command(name, shared=shared, run=two, macros=macros)))
    want = losses(alone)
    assert sorted(want) == [1, 2, 3, 4]
    assert losses(two) == pytest.approx(want, rel=1e-4)

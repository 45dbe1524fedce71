"""A short form of a recipe: its warm-up and phases follow TRAIN_STEPS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gin
import pytest

from t5x_like.config import gin_config, gin_files
from t5x_like.runs.run import Run
from t5x_like.runs.run_text import run_text
from t5x_like.runs.settings import proportion


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    gin.clear_config()


def followed(recipe: str, *bindings: str) -> tuple[Run, list[str]]:
    gin_config.load([str(gin_files.find_recipe(recipe))], ["MODEL_DIR=None", *bindings])
    notes = proportion.follow()
    return gin_config.build(Run), notes


def starts(run: Run) -> list[int]:
    return [start for start, _ in run.in_phases()]


def test_shares_stay_and_the_log_says_so() -> None:
    run, (note,) = followed("bert-mini", "TRAIN_STEPS=60")
    assert starts(run) == [0, 48]
    assert gin_config.macro("WARMUP_STEPS") == 3
    assert "TRAIN_STEPS 2,500 -> 60: " in note
    assert "WARMUP_STEPS 150 -> 3" in note
    assert "short/run.Phase.steps 2,000 -> 48" in note
    run, _ = followed("scibert-mini", "TRAIN_STEPS=10")
    assert starts(run)[1] < 10
    # This holds for a longer run, too.
    assert starts(followed("bert_base", "TRAIN_STEPS=2_000_000")[0]) == [0, 1_800_000]


def test_what_is_set_stays_as_it_is_set() -> None:
    _, (note,) = followed("bert-mini", "TRAIN_STEPS=60", "WARMUP_STEPS=7")
    assert gin_config.macro("WARMUP_STEPS") == 7
    assert "WARMUP" not in note
    run, notes = followed(
        "bert-mini", "TRAIN_STEPS=60", "WARMUP_STEPS=7", "short/run.Phase.steps=50"
    )
    assert (starts(run), notes) == ([0, 50], [])
    # The height of T5's plateau depends on its length.
    assert followed("t5-mini", "TRAIN_STEPS=60")[1] == []
    assert followed("bert-mini")[1] == []


def test_every_recipe_runs_one_step() -> None:
    for recipe in gin_files.published_recipes():
        run, _ = followed(recipe, "TRAIN_STEPS=1")
        assert run.options.train_steps == 1


@pytest.mark.parametrize("by_python", [False, True])
def test_a_run_that_is_there_keeps_what_it_began_with(by_python: bool, tmp_path: Path) -> None:
    run, _ = followed("bert-mini", "TRAIN_STEPS=60")
    made_in_python = run_text(gin_config.without_gin(run))
    text = made_in_python if by_python else gin_config.config_text()
    (tmp_path / "config.gin").write_text(text)
    run, (note,) = followed("bert-mini", f"MODEL_DIR={str(tmp_path)!r}", "TRAIN_STEPS=100")
    assert starts(run) == [0, 48]
    assert "as the run began: WARMUP_STEPS 150 -> 3" in note
    assert starts(followed("bert-mini", f"MODEL_DIR={str(tmp_path)!r}")[0]) == [0, 48]

"""Runs that say their length, warm-up and end in tokens."""

from __future__ import annotations

from collections.abc import Iterator

import gin
import pytest

from t5x_like.config import gin_config, gin_files
from t5x_like.runs.run import Run
from t5x_like.runs.run_text import run_text
from t5x_like.runs.settings import gin_run, proportion, token_counts
from t5x_like.runs.settings.unread_settings import UnreadError

IN_TOKENS = (
    "TRAIN_TOKENS=1_000_000",
    "WARMUP_TOKENS=50_000",
    "BATCH_WARMUP_TOKENS=184_320",
    "BATCH_WARMUP_ROWS=32",
    "PHASES=()",
    "TASK_FEATURE_LENGTHS={'inputs': 32}",
)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    gin.clear_config()


def followed(*bindings: str) -> tuple[Run, list[str]]:
    gin_config.load([str(gin_files.find_recipe("bert-mini"))], ["MODEL_DIR=None", *bindings])
    token_counts.estimate_total()
    notes = proportion.follow(token_counts.usual_total()) + token_counts.follow()
    return gin_config.build(Run), notes


def test_tokens_become_steps_by_the_batches_of_each_phase() -> None:
    """Rows of 32 tokens; batches of 32, 64 and 96 rows for 30 steps each, then of 128."""
    run, notes = followed(*IN_TOKENS)
    assert [start for start, _ in run.in_phases()] == [0, 30, 60, 90]
    assert 32 * 30 * (32 + 64 + 96) == 184_320
    assert run.options.train_steps == 90 + -(-(1_000_000 - 184_320) // (128 * 32))
    assert gin_config.macro("WARMUP_STEPS") == 30 + -(-(50_000 - 30 * 32 * 32) // (64 * 32))
    assert f"TRAIN_STEPS is {run.options.train_steps}, by the tokens of the batches." in notes
    text = run_text(run)  # what is saved and made again has the phases themselves
    gin_config.load_text(text, where="the saved text")
    assert gin_config.build(Run).phases == run.phases


def test_a_recipe_in_steps_keeps_its_shares() -> None:
    """bert-mini reads 2,000 steps of 128 x 32 tokens, then 500 of 128 x 64."""
    run, _ = followed("TRAIN_TOKENS=1_228_800")  # a tenth
    assert [start for start, _ in run.in_phases()] == [0, 200]
    assert (run.options.train_steps, gin_config.macro("WARMUP_STEPS")) == (250, 15)


def test_the_end_is_counted_from_the_last_step() -> None:
    followed(*IN_TOKENS, "DECAY_TOKENS=100_000")
    assert gin_config.macro("DECAY_STEPS") == 100_000 // (128 * 32)


def test_a_phase_in_tokens_has_steps_where_it_is_saved() -> None:
    run, (note,) = followed("short/run.Phase.steps=None", "short/run.Phase.tokens=1_000_000")
    steps = -(-1_000_000 // (128 * 32))
    assert [start for start, _ in run.in_phases()] == [0, steps]
    assert note == f"short/run.Phase.steps is {steps}, by the tokens of the batches."
    assert f"short/run.Phase.steps = {steps}" in gin_config.config_text()


def test_steps_of_the_user_go_before_tokens_of_a_recipe_and_not_beside_them() -> None:
    with pytest.raises(ValueError, match="TRAIN_STEPS and TRAIN_TOKENS say the same"):
        followed(*IN_TOKENS, "TRAIN_STEPS=7")
    with pytest.raises(ValueError, match="number of tokens"):
        followed("TRAIN_TOKENS='many'")
    assert followed()[1] == []


def test_tokens_whose_steps_nothing_reads_are_refused() -> None:
    files = [str(gin_files.find_recipe("bert-mini"))]
    with pytest.raises(UnreadError, match="nothing reads DECAY_TOKENS"):
        gin_run.load(files, ["MODEL_DIR=None", *IN_TOKENS, "DECAY_TOKENS=100_000"])

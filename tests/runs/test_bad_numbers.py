"""Runs whose numbers are bad: they stop, or go back and on; the batch can be seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tiny_run import Tiny, assert_same_state, losses, saved_steps

from t5x_like.core import exit_status
from t5x_like.runs import batches
from t5x_like.training.health.bad_batches import FOLDER

pytestmark = pytest.mark.slow
BAD = 4
STEPS = {"TRAIN_STEPS": 6, "CHECKPOINT_PERIOD": 2}


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Step 4 has weights of nan as often as the list has numbers, each of which is then removed."""
    left: list[int] = []
    usual = batches.PhaseBatches.batches

    def spoil(self: Any, start: int) -> Iterator[Any]:
        for step, batch in enumerate(usual(self, start), start + 1):
            if step == BAD and left:
                left.pop()
                weights = batch["decoder_loss_weights"] * np.nan
                yield {**batch, "decoder_loss_weights": weights}
            else:
                yield batch

    monkeypatch.setattr(batches.PhaseBatches, "batches", spoil)
    return left


def test_a_bad_batch_stops_the_run_and_is_shown(tiny: Tiny, spoilt: list[int]) -> None:
    spoilt += [1]
    result = tiny.train("run", **STEPS)
    assert result.status == exit_status.DIVERGED
    assert result.err.count("error: Stopped at step 4: ") == 1
    assert saved_steps(tiny.root / "run") == [2]
    file = tiny.root / "run" / FOLDER / "step_4.npz"
    assert f"t5x_like show {file}" in result.err
    shown = tiny.cli("show", str(file), "-n", "2", "--start", "6")
    assert shown.status == 0, shown.err
    assert "the batch of step 4, 8 rows" in shown.out
    assert "row 7" in shown.out
    assert "decoder_loss_weights: nan" in shown.out
    assert "<extra_id_0>" in shown.out
    again = tiny.train("run", **STEPS)  # the batch was bad, not the run
    assert again.status == 0, again.err


def test_it_goes_back_and_leaves_out_what_is_bad_twice(tiny: Tiny, spoilt: list[int]) -> None:
    spoilt += [1, 2]
    result = tiny.train("run", BAD_NUMBERS="roll_back", **STEPS)
    assert result.status == 0, result.err
    assert result.err.count("Goes back before step 4") == 2
    assert result.err.count("Resuming from step 2") == 2
    assert result.err.count("Leaves out the batch of step 4") == 1
    spoilt += [1]
    skipping = tiny.train("skipping", BAD_NUMBERS="skip", **STEPS)
    assert skipping.status == 0, skipping.err
    assert "Step 4 is skipped" in skipping.err
    one, other = losses(tiny.root / "run"), losses(tiny.root / "skipping")
    assert sorted(one) == [1, 2, 3, 5, 6]
    assert {step: other[step] for step in one} == pytest.approx(one, rel=1e-6)


def test_a_step_that_is_good_the_second_time_speaks_of_a_chip(
    tiny: Tiny, spoilt: list[int]
) -> None:
    spoilt += [1]
    result = tiny.train("run", BAD_NUMBERS="roll_back", **STEPS)
    assert result.status == 0, result.err
    assert "Step 4 was bad and is good from the same state and batch" in result.err
    straight = tiny.trained("straight", **STEPS)
    assert losses(tiny.root / "run") == losses(straight)
    assert_same_state(tiny.root / "run", straight)


def test_a_learning_rate_that_ruins_the_model_ends_the_run(tiny: Tiny) -> None:
    result = tiny.train("run", "--gin.schedules.rsqrt.scale=1e9", TRAIN_STEPS=200)
    assert result.status == exit_status.DIVERGED
    assert "The learning rate is far too high" in result.err
    assert saved_steps(tiny.root / "run") == []

"""Early stopping: it counts evaluations, ends the loop cleanly, and remembers after a restart."""

from __future__ import annotations

import functools
import io
import json
from pathlib import Path

import jax
import pytest
import tiny_model as tiny

from t5x_like.training import loop, step
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.checkpointing.ranking import BestMetric
from t5x_like.training.health.early_stopping import EarlyStopping
from t5x_like.training.health.safeguards import Safeguards
from t5x_like.training.health.watch import Watch
from t5x_like.training.logs.run_log import RunLog
from t5x_like.training.periods import Periods

WHERE = {"data": 2}
F1 = {2: 0.1, 4: 0.7, 6: 0.7, 8: 0.6, 10: 0.5, 12: 0.4}
"""What an evaluation after so many steps finds."""


@functools.cache
def program() -> step.Program:
    return tiny.build(None, tiny.layout(**WHERE))


def train(
    directory: Path, *, patience: int, total: int = 12, first: int = 2
) -> tuple[loop.Outcome, str]:
    """A run that evaluates and saves every 2 steps; its first evaluation is after `first`."""
    out, steps = io.StringIO(), iter([n for n in F1 if n >= first])
    phase = tiny.Phase(
        program=program(),
        batches=functools.partial(tiny.batches, tiny.layout(**WHERE)),
        evaluate=lambda params: {"tiny/f1": F1[next(steps)]},
    )
    outcome = loop.train(
        [phase],
        key=jax.random.key(7),
        checkpoints=Checkpoints(directory / "checkpoints", best_metric="f1"),
        metadata={},
        watch=Watch(
            RunLog(directory, total_steps=total, stream=out, tensorboard=False),
            Periods(
                train_steps=total,
                eval_period=2,
                checkpoint_period=3,
                log_period=2,
                early_stopping=patience,
            ),
            safeguards=Safeguards(),
        ),
    )
    return outcome, out.getvalue()


@pytest.mark.slow
def test_the_run_ends_and_ends_again_until_patience_is_raised(tmp_path: Path) -> None:
    outcome, said = train(tmp_path, patience=2)
    assert outcome == loop.Outcome("stopped_early", 8)
    assert "Stopped early: f1 was best at step 4 (0.7) and has not improved in 2 eval" in said
    saved = Checkpoints(tmp_path / "checkpoints")
    assert saved.steps()[-1] == 8
    metrics = json.loads((tmp_path / "checkpoints" / "8" / "metrics" / "metrics").read_text())
    assert metrics["tiny/f1"] == 0.6
    outcome, said = train(tmp_path, patience=2)
    assert outcome == loop.Outcome("already_finished", 8)
    assert "Raise EARLY_STOPPING to go on from step 8" in said
    # The evaluations before the restart count.
    assert train(tmp_path, patience=3, first=10)[0] == loop.Outcome("stopped_early", 10)


@pytest.mark.slow
def test_a_killed_run_stops_where_it_would_have_stopped(tmp_path: Path) -> None:
    assert train(tmp_path, patience=2, total=6)[0].status == "finished"
    assert train(tmp_path, patience=2, first=8)[0] == loop.Outcome("stopped_early", 8)


def test_missing_values_do_not_count_and_a_new_phase_begins_again() -> None:
    stopping = EarlyStopping(BestMetric.parse("loss"), 2)
    for step_, values, phase, over in [
        (1, {"a/loss": 3.0}, 0, False),
        (2, {"a/loss": 3.5}, 0, False),
        (3, {}, 0, False),
        (4, {"a/loss": float("nan")}, 0, False),
        (5, {"a/token_loss": 9.0}, 4, False),
        (6, {"a/loss": 9.0}, 4, False),
        (7, {"a/loss": 9.1}, 4, True),
    ]:
        stopping.add(step_, values, phase=phase)
        assert stopping.over() == over, step_

"""A run of a tiny model whose files say afterwards how it went."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
import tiny_model as tiny

from t5x_like.training import loop
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.health.safeguards import Safeguards
from t5x_like.training.health.watch import Watch
from t5x_like.training.logs.metrics_file import read_metrics
from t5x_like.training.logs.run_log import RunLog
from t5x_like.training.periods import Periods

WHERE = {"data": 1}


class CrashError(Exception):
    """Ends a run without a word to it, as far as it goes in a test."""


def train(directory: Path, *, crash_at: int | None = None) -> loop.Outcome:
    """12 steps, with a log line every 2, an evaluation every 4, a checkpoint every 4."""
    where = tiny.layout(**WHERE)
    checkpoints = Checkpoints(directory / "checkpoints")
    log = RunLog(directory, total_steps=12, stream=io.StringIO(), tensorboard=False)
    log.describe({"train_steps": 12}, checkpoints.saved)

    def batches(start: int) -> Iterator[Any]:
        for n, batch in enumerate(tiny.batches(where, start), start):
            if n == crash_at:
                raise CrashError
            yield batch

    def evaluate(params: Any) -> dict[str, float]:
        log.baselines(0, lambda: {"tiny/loss": 9.0})
        return {"tiny/loss": 1.0}

    phase = tiny.Phase(program=tiny.build(None, where), batches=batches, evaluate=evaluate)
    with log:
        return loop.train(
            [phase],
            key=jax.random.key(7),
            checkpoints=checkpoints,
            metadata={},
            watch=Watch(
                log,
                Periods(train_steps=12, eval_period=4, checkpoint_period=4, log_period=2),
                safeguards=Safeguards(),
            ),
        )


@pytest.mark.slow
def test_a_run_that_failed_twice_counts_each_step_once(tmp_path: Path) -> None:
    for crash_at in (7, 7):
        with pytest.raises(CrashError):
            train(tmp_path, crash_at=crash_at)
    assert json.loads((tmp_path / "summary.json").read_text())["status"] == "failed"
    assert train(tmp_path).status == "finished"
    found = json.loads((tmp_path / "summary.json").read_text())
    assert [(s["from_step"], s["lost_steps"], s["status"]) for s in found["starts"]] == [
        (0, 1, "failed"),  # two more had begun
        (4, 1, "failed"),
        (4, 0, "finished"),
    ]
    rows = [tiny.rows(n)["mask_near"].sum() for n in range(12)]
    assert (found["status"], found["steps"], found["tokens"]) == ("finished", 12, sum(rows))
    assert found["checkpoints"] == {"steps": [4, 8, 12], "best": 4}
    for kind in ("startup", "compile", "steps", "restarts", "checkpoint"):
        assert found["seconds"][kind] > 0, kind
    assert found["wall_seconds"] == pytest.approx(sum(found["seconds"].values()))
    baselines = [n for n in read_metrics(tmp_path / "metrics.jsonl") if "baseline/tiny/loss" in n]
    assert baselines == [{"step": 0, "baseline/tiny/loss": 9.0}]
    said = (tmp_path / "log.txt").read_text()
    assert said.count("error: CrashError") == 2
    assert "start 3" in said
    assert "Resuming from step 4" in said

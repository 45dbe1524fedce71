"""Loss curves read from logs and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from t5x_like.training.logs import curves


def write(directory: Path, *lines: dict[str, object]) -> Path:
    directory.mkdir()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "metrics.jsonl").write_text(text + '{"step": 9, "train/lo')
    return directory


def test_losses_of_training_and_of_each_evaluation(tmp_path: Path) -> None:
    run = write(
        tmp_path / "run",
        {"step": 1, "train/loss": 3.0, "train/z_loss": 0.1},
        {"step": 2, "train/loss": None},
        {"step": 2, "eval/a/loss": 2.0, "eval/b/loss": 0.0, "eval/a/accuracy": 0.5},
        {"step": 3, "train/loss": 1.5},
    )
    assert curves.losses(run) == {
        "train/loss": ([1, 3], [3.0, 1.5]),
        "eval/a/loss": ([2], [2.0]),
        "eval/b/loss": ([2], [0.0]),
    }


def test_runs_are_drawn_into_a_png(tmp_path: Path) -> None:
    runs = [
        write(tmp_path / name, {"step": 1, "train/loss": 3.0}, {"step": 1, "eval/a/loss": 2.0})
        for name in ("one", "two")
    ]
    curves.plot(runs, tmp_path / "plots" / "curves.png")
    assert (tmp_path / "plots" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"No metrics.jsonl in"):
        curves.plot([tmp_path], tmp_path / "x.png")
    with pytest.raises(ValueError, match="holds no loss yet"):
        curves.losses(write(tmp_path / "empty"))
    with pytest.raises(ValueError, match="at least one run"):
        curves.plot([], tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()

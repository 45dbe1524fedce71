"""The metric that ranks checkpoints: its name, its direction, its values in evaluations."""

from __future__ import annotations

import json
import math

import pytest
from etils import epath

from t5x_like.training.checkpointing.checkpoint_items import CheckpointError
from t5x_like.training.checkpointing.ranking import BestMetric, with_phase


@pytest.mark.parametrize(
    ("text", "name", "higher"),
    [
        ("loss", "loss", False),
        ("mine/content_loss", "mine/content_loss", False),
        ("bits_per_byte", "bits_per_byte", False),
        ("loss_task/accuracy", "loss_task/accuracy", True),
        ("-edit_distance", "edit_distance", False),
        ("+loss", "loss", True),
    ],
)
def test_direction(text: str, name: str, higher: bool) -> None:
    assert BestMetric.parse(text) == BestMetric(name, higher)


@pytest.mark.parametrize("text", ["", "-", None, 3])
def test_no_name(text: object) -> None:
    with pytest.raises(ValueError, match="BEST_METRIC must be the name of a metric"):
        BestMetric.parse(text)  # type: ignore[arg-type]


def test_value_is_of_one_task_or_the_mean_of_all() -> None:
    metrics = {"a/f1": 0.5, "b/f1": 1.0, "b/macro/f1": math.nan, "b/loss": 3.0}
    assert BestMetric.parse("f1").value(metrics) == 0.75
    assert BestMetric.parse("b/f1").value(metrics) == 1.0
    assert BestMetric.parse("macro/f1").value(metrics) is None
    with pytest.raises(ValueError, match=r"BEST_METRIC is 'f2', but .*; nearest: f1"):
        BestMetric.parse("f2").check(metrics)


def test_several_names_are_the_mean_of_their_metrics() -> None:
    metrics = {"a/f1": 0.5, "b/pearson": 0.9, "b/loss": 3.0}
    several = BestMetric.parse("a/f1,b/pearson")
    assert several.higher
    assert several.value(metrics) == pytest.approx(0.7)
    assert several.value({"a/f1": 0.5}) is None
    several.check(metrics)
    with pytest.raises(ValueError, match=r"BEST_METRIC is 'b/pearson', but no evaluation"):
        several.check({"a/f1": 0.5})
    with pytest.raises(ValueError, match=r"'a/f1,b/loss', of which some are better if they are lo"):
        BestMetric.parse("a/f1,b/loss")


def test_best_step_is_of_the_last_phase_with_a_value(tmp_path) -> None:
    saved = {
        10: with_phase({"a/f1": 0.9}, 0),
        20: with_phase({"a/f1": 0.5}, 15),
        30: with_phase({"a/f1": 0.6}, 15),
        40: with_phase({}, 15),
    }
    for step, metrics in saved.items():
        (tmp_path / str(step) / "metrics").mkdir(parents=True)
        (tmp_path / str(step) / "metrics" / "metrics").write_text(json.dumps(metrics))
    directory = epath.Path(tmp_path)
    assert BestMetric.parse("f1").step_in(directory, saved) == 30
    assert BestMetric.parse("-f1").step_in(directory, saved) == 20
    with pytest.raises(CheckpointError, match=r"has a value of 'f2' .*\[10, 20, 30, 40\]"):
        BestMetric.parse("f2").step_in(directory, saved)

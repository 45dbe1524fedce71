"""Axes: names that are refused, values that are drawn, and folders that tell settings apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from t5x_like.sweeps import axes
from t5x_like.sweeps.axes import Range
from t5x_like.sweeps.trials import planned


def settings(grid: Any, ranges: Any = None, trials: int | None = None, seed: int = 0) -> list:
    return axes.settings(grid, ranges or {}, trials=trials, draw_seed=seed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (({"learnin_rate": [1]},), "nearest: learning_rate"),
        (({"seed": [1]},), "'seed' is not an axis"),
        (({"epochs": []},), "epochs has no values"),
        (({"epochs": [1, 1]},), "epochs has a value twice"),
        (({"epochs": [1]}, {"epochs": Range(1, 2)}, 3), "both listed and drawn"),
        (({}, {"epochs": Range(2, 1)}, 3), "a range rises"),
        (({}, {"epochs": Range(0, 1, log=True)}, 3), "numbers above 0"),
        (({}, {"method": Range(0, 1)}, 3), "list them in a grid"),
        (({}, {"epochs": Range(1, 2)}), "trials says how often"),
        (({"epochs": [1]}, {}, 3), "trials says how often"),
    ],
)
def test_bad_axes(arguments: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settings(*arguments)


def test_a_grid_is_each_value_with_each_other_one() -> None:
    grid = {"learning_rate": [1e-5, 2e-5], "WEIGHT_DECAY": [0.0, 0.1, None]}
    together = settings(grid)
    assert len(together) == 6
    assert {(row["learning_rate"], row["WEIGHT_DECAY"]) for row in together} == {
        (rate, decay) for rate in grid["learning_rate"] for decay in grid["WEIGHT_DECAY"]
    }
    assert settings({}) == [{}]


def test_draws_are_those_of_their_seed_and_more_begin_alike() -> None:
    rate = Range(1e-5, 1e-3, log=True)
    drawn = rate.drawn("learning_rate", 200, 0)
    assert all(1e-5 <= value <= 1e-3 for value in drawn)
    # As many below the geometric mean of the ends as above it.
    assert 80 < sum(value < 1e-4 for value in drawn) < 120
    both = settings({}, {"learning_rate": rate, "batch_size": Range(8, 10)}, 50)
    assert [row["learning_rate"] for row in both] == drawn[:50]
    assert {row["batch_size"] for row in both} == {8, 9, 10}
    assert rate.drawn("learning_rate", 50, 1) != drawn[:50]
    # What comes twice is run once.
    assert len(settings({}, {"batch_size": Range(8, 10)}, 50)) == 3
    assert np.mean(Range(0, 1).drawn("epochs", 400, 0)) == pytest.approx(0.5, abs=0.05)


def test_trials_have_names_of_their_own() -> None:
    grid = settings({"learning_rate": [1e-5, 2e-5], "gin.X": ["a b", "[1]"]})
    trials = planned(grid, range(2), tasks=["sst2", "rte"], examples=[16, "all"])
    assert len(trials) == len({trial.name for trial in trials}) == 32
    assert [trial.seed for trial in trials[:16]] == [0] * 16
    assert trials[0].name == "task=sst2,examples=16,learning_rate=1e-05,gin.X=a_b,seed=0"
    assert trials[0].arguments() == {"task": "sst2", "examples": 16, "learning_rate": 1e-5}
    assert trials[0].bindings() == ["gin.X='a b'"]
    with pytest.raises(ValueError, match="same name"):
        planned(settings({"gin.X": ["a b", "a_b"]}), [0])
    with pytest.raises(ValueError, match="seeds has a value twice"):
        planned([{}], [1, 1])

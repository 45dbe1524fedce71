"""A sweep: runs equal to those of `finetune`, compiled once, and gone on with after a kill."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import nnx
from small_reviews import evaluations
from tiny_run import Result, losses, state

import t5x_like as t5x
from t5x_like.runs.program import Programs
from t5x_like.training import step
from t5x_like.training.optimization.parameter_paths import by_path


@pytest.fixture
def arguments(pretrained: Path, reviews: Path, tmp_path: Path) -> dict[str, Any]:
    return {
        "source": str(pretrained),
        "train": str(reviews),
        "cache_dir": str(tmp_path / "cache"),
        "batch_size": 16,
        "epochs": 2,
        "gin": ["LOG_PERIOD=1"],
    }


@pytest.mark.slow
def test_trials_are_runs_of_their_own_that_share_a_program(
    arguments: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Callable[..., Result],
) -> None:
    built = []
    monkeypatch.setattr(
        "t5x_like.runs.program.step.build",
        lambda *args, build=step.build, **options: built.append(args) or build(*args, **options),
    )
    sweep = {**arguments, "grid": {"learning_rate": [1e-3, 5e-3]}, "model_dir": str(tmp_path / "s")}
    first = t5x.sweep(**sweep, seeds=1)
    assert [result.setting for result in first.results] == [
        {"learning_rate": 1e-3},
        {"learning_rate": 5e-3},
    ]
    assert len(built) == 1
    trial = tmp_path / "s" / "trials" / "learning_rate=0.005,seed=0"
    programs = Programs()  # others than those of the sweep

    def finetune(rate: float, seed: int, model_dir: Path) -> t5x.Pretraining:
        run = t5x.finetune(**arguments, learning_rate=rate, seed=seed, model_dir=str(model_dir))
        return dataclasses.replace(run, programs=programs)

    finetune(5e-3, 0, tmp_path / "alone").train()
    assert losses(trial) == losses(tmp_path / "alone")
    pairs = zip(state(trial).values(), state(tmp_path / "alone").values(), strict=True)
    assert all((one == other).all() for one, other in pairs)
    second = first.results[1]
    assert second.value == max(evaluations(trial, "reviews/accuracy"))
    (floor,) = (
        line["baseline/reviews/f1"]
        for line in map(json.loads, (trial / "metrics.jsonl").read_text().splitlines())
        if "baseline/reviews/f1" in line
    )
    assert 0 < floor < 1
    # More seeds: what has ended is not run again, and what was killed goes on.
    killed = tmp_path / "s" / "trials" / "learning_rate=0.001,seed=1"
    for taken in finetune(1e-3, 1, killed).steps():
        if taken.step == 5:
            break
    again = t5x.sweep(**sweep, seeds=2)
    assert again.results[:2] == first.results
    assert [result.seed for result in again.results] == [0, 0, 1, 1]
    assert "Resuming from step 5" in (killed / "log.txt").read_text()
    assert again.left == 0
    assert "learning_rate=0.001" in str(again)
    check_greedy_soup(again, tmp_path, cli)
    with pytest.raises(ValueError, match="other settings: epochs was 2 and is 3"):
        t5x.sweep(**{**sweep, "epochs": 3})


def check_greedy_soup(table: Any, tmp_path: Path, cli: Callable[..., Result]) -> None:
    """Each run of the sweep is tried once, the best first, and the soup is no worse than it."""
    done = cli("merge", str(table.directory), "--to", str(tmp_path / "soup"), "--how=greedy")
    assert done.status == 0, done.err
    *lines, last = done.out.splitlines()
    form = re.compile(r"(.*), step 18: accuracy ([\d.]+), (?:.* before ([\d.]+), )?(.*)")
    tried = [found for line in lines if (found := form.fullmatch(line))]
    assert len(tried) == len(lines) == len(table.results)
    assert {x[1] for x in tried} == {table.run(result) for result in table.results}
    alone = [float(x[2]) for x in tried]
    assert alone == sorted(alone, reverse=True)
    assert alone[0] == pytest.approx(max(result.value for result in table.results), abs=1e-4)
    best = alone[0]
    for x in tried[1:]:
        assert (x[4] == "kept") == (float(x[3]) >= best)
        best = max(best, float(x[3]))
    kept = [x[1] for x in tried if x[4] == "kept"]

    def parameters(directory: str) -> dict[str, Any]:
        return by_path(nnx.to_pure_dict(nnx.state(t5x.load(directory).model, nnx.Param)))

    soup, params = parameters(str(tmp_path / "soup")), [*map(parameters, kept)]
    for path, value in soup.items():
        np.testing.assert_allclose(value, np.mean([of[path] for of in params], axis=0), atol=1e-6)
    assert last.startswith(f"{tmp_path / 'soup'}: ")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"grid": {"batch_size": [8]}}, "batch_size is both an axis and a setting of all runs"),
        ({"grid": {"LOG_PERIOD": [8]}}, "LOG_PERIOD is both an axis"),
        ({"seed": 3}, "'seed' is not a setting of all runs"),
        ({"grid": {"length": [2000]}}, "max_positions"),
        ({"grid": {"method": ["lora", "lorra"]}}, "no method 'lorra'"),
        ({"grid": {"rank": [2]}}, "rank is a setting of the methods lora"),
        ({"grid": {"NO_SUCH": [2]}}, "no gin macro 'NO_SUCH'"),
        ({"draw": {"learning_rate": (1, 2, 3)}, "trials": 2}, "a range is"),
        ({"examples": [16]}, "name the held-out files"),
        ({"seeds": 0}, "seeds must be at least 1"),
    ],
)
def test_bad_input_ends_a_sweep_before_it_begins(
    arguments: dict[str, Any], tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    with pytest.raises((ValueError, OSError), match=said):
        t5x.sweep(**arguments, model_dir=str(tmp_path / "s"), **more)
    assert not (tmp_path / "s").exists()

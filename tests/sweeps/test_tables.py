"""What a sweep comes to: statistics over seeds, failures, averages of tasks, and early ends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from t5x_like.reporting.report import report
from t5x_like.sweeps import results, summary
from t5x_like.sweeps.averages import averages
from t5x_like.sweeps.results import Result
from t5x_like.sweeps.stopping import MedianStopping
from t5x_like.sweeps.table import Table
from t5x_like.sweeps.trials import Trial, remember
from t5x_like.training.checkpointing.ranking import BestMetric
from t5x_like.training.logs.energy import Assumptions


def result(setting: Any, seed: int, value: float | None, **more: Any) -> Result:
    usual = {
        "trial": Trial(setting, seed).name,
        "metric": "accuracy",
        "higher": True,
        "step": 5,
        "metrics": {"accuracy": value},
        "floor": 0.5,
        "evaluations": [value],
        "ended_early": None,
        "seconds": 1.0,
    }
    return Result(**{**usual, "setting": setting, "seed": seed, "value": value, **more})


def test_statistics_of_seeds() -> None:
    low, high = {"learning_rate": 1e-5}, {"learning_rate": 1e-3}
    ran = [
        *(result(low, seed, value) for seed, value in enumerate((0.7, 0.8, 0.75))),
        *(result(high, seed, value) for seed, value in enumerate((0.95, 0.5, 0.4))),
        result(high, 3, None, ended_early=2),
    ]
    first, second = summary.summaries(ran)
    assert (first.median, first.best.value, first.failed) == (0.75, 0.8, 0)
    assert first.mean == pytest.approx(0.75)
    assert first.deviation == pytest.approx(0.05)
    assert first.spread == pytest.approx(0.1)
    # As good as one answer to all texts is not better; neither is a run without a value.
    # The run without a value is the worst of four: the median is between 0.4 and 0.5.
    assert (second.median, second.failed, second.ended_early) == (0.45, 3, 1)
    gone = [result(low, seed, None, diverged=True) for seed in (0, 1)]
    (third,) = summary.summaries([*gone, result(low, 2, 0.9)])
    assert (third.median, third.mean, third.failed, third.diverged) == (None, 0.9, 2, 2)
    assert summary.best([third]) == []
    assert [of.setting for of in summary.best([first, second])] == [low]
    less = [result(low, 0, 0.3, higher=False), result(high, 0, 0.2, higher=False)]
    assert [of.setting for of in summary.best(summary.summaries(less))] == [high]
    assert not less[0].failed
    assert result(low, 0, 0.6, higher=False).failed


def test_the_average_over_tasks_takes_the_mean_of_two_metrics_first() -> None:
    def of(task: str, seed: int, value: float, **metrics: float) -> Result:
        return result({"task": task, "epochs": 3}, seed, value, metrics=metrics)

    ran = [
        of("mrpc", 0, 0.9, f1=0.9, accuracy=0.8),
        of("sst2", 0, 0.95, accuracy=0.95),
        of("stsb", 0, 0.6, pearson=0.6, spearman=0.5),
        of("mrpc", 1, 0.9, f1=0.9, accuracy=0.8),
    ]
    (mean,) = averages(ran, ["mrpc", "sst2", "stsb"])
    assert mean.value == pytest.approx((0.85 + 0.95 + 0.55) / 3)
    assert (mean.setting, mean.seed) == ({"task": "average", "epochs": 3}, 0)


def test_a_trial_ends_once_it_is_below_the_median_of_three() -> None:
    best = BestMetric.parse("accuracy")

    def judge(count: int, before: Any = ()) -> MedianStopping:
        curves = [[0.5, 0.6], [0.6, 0.7], [0.7, 0.7], [0.9]][:count]
        return MedianStopping(
            best, [result({}, n, c[-1], evaluations=c) for n, c in enumerate(curves)], before
        )

    few = judge(2)
    few.evaluate(10, {"task/accuracy": 0.0})
    assert few.ended_at is None
    good = judge(3)
    good.evaluate(10, {"task/accuracy": 0.6})
    assert good.ended_at is None  # as good as the median
    good.evaluate(20, {"task/accuracy": 0.1})
    assert good.ended_at == 20  # its best, 0.6, is below 0.7
    resumed = judge(3, before=[0.8])
    resumed.evaluate(20, {"task/accuracy": 0.1})
    assert resumed.ended_at is None
    bad = judge(4)
    bad.evaluate(10, {"task/accuracy": 0.64})
    assert bad.ended_at == 10
    nothing = judge(3)
    nothing.evaluate(10, {"task/accuracy": float("nan")})
    assert nothing.ended_at == 10


def test_a_result_is_that_of_the_best_evaluation(tmp_path: Path) -> None:
    lines = [
        {"step": 0, "baseline/t/f1": 0.4, "baseline/t/accuracy": 1.0},
        {"step": 5, "eval/t/f1": 0.5, "eval/t/loss": 0.7},
        {"step": 10, "eval/t/f1": 0.7, "eval/t/loss": 0.8},
        {"step": 15, "eval/t/f1": 0.6, "eval/t/loss": 0.9},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    about: Any = {"trial": "t", "setting": {}, "seed": 1, "ended_early": None, "seconds": 2.0}
    about["diverged"] = False
    measured = results.measured(tmp_path, BestMetric.parse("f1"), **about)
    assert (measured.value, measured.step, measured.floor) == (0.7, 10, 0.4)
    assert measured.metrics == {"f1": 0.7, "loss": 0.8}
    assert measured.evaluations == [0.5, 0.7, 0.7]
    least = results.measured(tmp_path, BestMetric.parse("loss"), **about)
    assert (least.value, least.step, least.failed) == (0.7, 5, False)
    assert results.measured(tmp_path, BestMetric.parse("f1"), **{**about, "diverged": True}).failed
    said = "In 1 of 2 trials all held-out rows have one class, so that none can be better"
    assert said in str(Table(tmp_path, [measured, result({}, 0, 0.9)]))
    results.write(tmp_path, [measured])
    path = tmp_path / "trials.jsonl"
    earlier = json.loads(path.read_text()) | {"trial": "earlier"}
    del earlier["one_class"]  # which a sweep from before did not write
    path.write_text(path.read_text() + json.dumps(earlier) + '\n{"trial": "torn')
    read = results.read(tmp_path)
    assert (read["t"], [*read]) == (measured, ["t", "earlier"])


def test_a_folder_has_one_sweep(tmp_path: Path) -> None:
    trials = [Trial({}, 0)]
    remember(tmp_path / "one", {"grid": {"epochs": (1, 2)}}, trials)
    remember(tmp_path / "one", {"grid": {"epochs": [1, 2]}}, [*trials, Trial({}, 1)])
    with pytest.raises(ValueError, match="other settings: grid was"):
        remember(tmp_path / "one", {"grid": {"epochs": [1, 3]}}, trials)
    with pytest.raises(ValueError, match="has files, but no sweep"):
        remember(tmp_path, {}, trials)


def test_the_page_and_the_table_say_what_is_best(tmp_path: Path) -> None:
    folder = tmp_path / "<sweep>"
    ran = [
        result({"examples": n, "learning_rate": rate}, seed, n * rate * 10 + seed / 50)
        for n in (16, 64)
        for rate in (1e-4, 1e-3)
        for seed in (0, 1)
    ]
    remember(folder, {}, [*(Trial(r.setting, r.seed) for r in ran), Trial({}, 9)])
    assert "No trial has ended yet." in str(Table.read(folder))
    assert "No trial has ended yet." in report([folder], Assumptions())
    results.write(folder, ran)
    text = str(Table.read(folder))
    assert "1 of 9 trials have not ended." in text
    assert "Best by its median: examples=64, learning_rate=0.001" in text
    assert f"{folder}/trials/examples=64,learning_rate=0.001,seed=1 --step best" in text
    written = report([folder], Assumptions())
    assert written.count("<svg") == 2
    assert "training rows" in written
    assert "<sweep>" not in written
    assert len(re.findall(r"<tr[^>]*><th>examples=", written)) == 4 + 8
    assert report([folder], Assumptions()) == written
    with pytest.raises(ValueError, match="name the sweep alone"):
        report([folder, tmp_path], Assumptions())

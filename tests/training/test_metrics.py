"""Means of (sum, weight) pairs and rates, on a clock of our own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from t5x_like.training import metrics
from t5x_like.training.logs.ledger import Ledger
from t5x_like.training.metrics import Meter, NonFiniteError, check_finite


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(metrics, "peak_flops", lambda kind: 50.0)
    return Clock()


def pair(total: float, weight: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    return np.float32(total), np.float32(weight)


def test_means_divide_once_at_the_end(clock: Clock) -> None:
    meter = Meter(Ledger(clock=clock))
    meter.add({"loss": pair(9, 1), "norm": pair(1), "none": pair(0, 0)})
    meter.add({"loss": pair(3, 5), "norm": pair(3), "none": pair(0, 0)})
    clock.now += 1
    report = meter.report()
    assert (report["loss"], report["norm"]) == (2.0, 2.0)
    assert math.isnan(report["none"])
    meter.add({"loss": pair(5)})
    assert meter.report()["loss"] == 5.0


def test_the_learning_rate_is_that_of_the_last_step(clock: Clock) -> None:
    meter = Meter(Ledger(clock=clock))
    for rate in (0.5, 0.25):
        meter.add({"loss": pair(4 * rate), "learning_rate": pair(rate)})
    clock.now += 1
    report = meter.report()
    assert (report["loss"], report["learning_rate"]) == (1.5, 0.25)


def test_terms_of_a_loss_are_divided_each_by_its_own_weight(clock: Clock) -> None:
    meter = Meter(Ledger(clock=clock))
    for masked, rows in ((1, 3), (5, 1)):
        terms = np.float32([6, 8]), np.float32([masked, rows])
        meter.add({"loss": terms, "mlm_perplexity": (terms[0][0], terms[1][0])})
    clock.now += 1
    report = meter.report()
    assert (report["loss"], report["mlm_perplexity"]) == (12 / 6 + 16 / 4, pytest.approx(np.exp(2)))


def test_rates_leave_out_pauses(clock: Clock) -> None:
    meter = Meter(Ledger(clock=clock))
    with meter.spending("input_wait"):
        clock.now += 1
    meter.add({"tokens": pair(300), "flops": pair(1600, 4)})
    clock.now += 3
    with meter.spending("evaluation"):
        clock.now += 4
    report = meter.report()
    devices = metrics.jax.device_count()
    assert report["tokens_per_second"] == 75
    assert report["steps_per_second"] == 0.25
    assert report["input_wait"] == 0.25
    assert report["goodput"] == 3 / 8
    assert report["flops_per_second"] == 400
    assert report["mfu"] == pytest.approx(1600 / 4 / (50 * devices))
    assert not {"tokens", "flops"} & set(report)


def test_steps_that_come_in_at_once_share_their_time(clock: Clock) -> None:
    meter = Meter(Ledger(clock=clock))
    step = {"loss": pair(1), "tokens": pair(10)}
    meter.add(step)
    clock.now += 1
    first = meter.report()
    meter.add(step | {"loss": pair(3)})
    assert meter.report() == first | {"loss": 3.0}
    meter.add(step)
    clock.now += 1
    report = meter.report()
    assert (report["loss"], report["tokens_per_second"], report["steps_per_second"]) == (1, 20, 2)


def test_compilation_counts_for_goodput_alone(clock: Clock) -> None:
    meter = Meter(Ledger(clock=clock))
    meter.compiling()
    clock.now += 6
    meter.add({"loss": pair(4), "tokens": pair(1000)})
    meter.compiled()
    clock.now += 2
    meter.add({"loss": pair(2), "tokens": pair(10)})
    report = meter.report()
    assert (report["loss"], report["tokens_per_second"], report["goodput"]) == (3, 5, 0.25)


def test_no_utilisation_where_the_peak_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "peak_flops", lambda kind: None)
    meter = Meter(Ledger(clock=Clock()))
    meter.add({"flops": pair(1)})
    assert "mfu" not in meter.report()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named(bad: float) -> None:
    with pytest.raises(NonFiniteError, match="grad_norm is "):
        check_finite({"loss": pair(1), "grad_norm": pair(bad)})
    with pytest.raises(NonFiniteError, match="loss is "):
        check_finite({"loss": (np.float32([1, bad]), np.float32([1, 1]))})

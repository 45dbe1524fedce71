"""From (sum, weight) metrics and clock readings to the numbers in the log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from t5x_like.core.protocols import metric_value
from t5x_like.training.hardware import peak_flops

TOTALS = ("tokens", "flops")
"""Metrics whose sum is the step's total and whose weight has no meaning: they become rates."""


class NonFiniteError(RuntimeError):
    """A loss or a norm is nan or infinite."""


def check_finite(metrics: Mapping[str, tuple[Any, Any]]) -> None:
    """Checks the sums of metrics, which are on the host.

    Raises:
      NonFiniteError: one of them is nan or infinite; the message says which.
    """
    for name, (total, _) in metrics.items():
        if not np.isfinite(total).all():
            raise NonFiniteError(f"{name} is {np.sum(total)}")


class Meter:
    """Adds up the metrics of the steps since the last report.

    Rates count the time in which steps ran. It includes reading input; it excludes evaluating,
    saving and compiling the first step, which `goodput` shows instead.

    - `tokens_per_second`: the model's own metric `tokens` (padding excluded) over that time.
    - `flops_per_second`: the model's metric `flops` (forward and backward, without padding,
      without the repetitions of rematerialisation) over that time.
    - `mfu`: model FLOPs utilisation: `flops_per_second` over the peak of all devices, if known.
    - `input_wait`: the share of that time spent waiting for the next batch.
    - `goodput`: the share of the time since the meter was made in which steps ran.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._made = self._mark = clock()
        self._useful = self._waited = self._spent = 0.0
        self._sums: dict[str, np.ndarray] = {}
        self._steps = 0
        peak = peak_flops(jax.devices()[0].device_kind)
        self._peak = None if peak is None else peak * jax.device_count()

    def add(self, metrics: Mapping[str, tuple[Any, Any]]) -> None:
        """Adds one step's metrics, which are on the host."""
        for name, (total, weight) in metrics.items():
            pair = np.array([total, weight], np.float64)
            self._sums[name] = self._sums.get(name, 0.0) + pair
        self._steps += 1

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """A context for reading a batch."""
        start = self._clock()
        yield
        self._waited += self._clock() - start

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A context for work that is not training: compiling, evaluating, saving."""
        self._spent += self._clock() - self._mark
        yield
        self._mark = self._clock()

    def restart(self) -> None:
        """Sets time and totals back to 0, but not means: the time so far was compilation."""
        self._sums = {name: pair for name, pair in self._sums.items() if name not in TOTALS}
        self._restart_rates(self._clock())

    def report(self) -> dict[str, float]:
        """Means and rates of the steps since the last report; sets all back to 0."""
        now = self._clock()
        seconds = max(self._spent + now - self._mark, 1e-9)
        self._useful += seconds
        means = {
            name: metric_value(name, total, weight)
            for name, (total, weight) in self._sums.items()
            if name not in TOTALS
        }
        rates = {
            "steps_per_second": self._steps / seconds,
            "input_wait": self._waited / seconds,
            "goodput": self._useful / max(now - self._made, 1e-9),
        }
        if "tokens" in self._sums:
            rates["tokens_per_second"] = float(self._sums["tokens"][0]) / seconds
        if "flops" in self._sums:
            rates["flops_per_second"] = float(self._sums["flops"][0]) / seconds
            if self._peak is not None:
                rates["mfu"] = rates["flops_per_second"] / self._peak
        self._sums = {}
        self._restart_rates(now)
        return means | rates

    def _restart_rates(self, now: float) -> None:
        self._steps = 0
        self._waited = self._spent = 0.0
        self._mark = now

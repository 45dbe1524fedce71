"""From (sum, weight) metrics and clock readings to the numbers in the log."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from t5x_like.core.devices.published import peak_flops
from t5x_like.core.protocols.model import metric_value
from t5x_like.training.logs.ledger import Ledger

TOTALS = ("tokens", "flops")
"""Metrics whose sum is the step's total and whose weight has no meaning: they become rates."""


OF_ONE_STEP = ("learning_rate",)
"""Metrics whose value is that of the newest step, where that of others is a mean over the steps."""


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
    - `goodput`: the share of the time since the meter was made in which steps ran and did not wait
      for input.

    Where no time has passed since the last report, rates are those of that one.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Puts time and totals into `ledger`, where from now on steps run."""
        self._ledger = ledger
        ledger.turn("steps")
        self._made = self._since = ledger.seconds()
        self._sums: dict[str, np.ndarray] = {}
        self._rates: dict[str, float] = {}
        self._steps = 0
        peak = peak_flops(jax.devices()[0].device_kind)
        self._peak = None if peak is None else peak * jax.device_count()

    def add(self, metrics: Mapping[str, tuple[Any, Any]]) -> None:
        """Adds one step's metrics, which are on the host."""
        for name, (total, weight) in metrics.items():
            pair = np.array([total, weight], np.float64)
            before = 0.0 if name in OF_ONE_STEP else self._sums.get(name, 0.0)
            self._sums[name] = before + pair
            if name in TOTALS:
                self._ledger.count(name, float(pair[0]))
        self._ledger.count("steps", 1)
        self._steps += 1

    def spending(self, kind: str) -> contextlib.AbstractContextManager[None]:
        """A context for reading a batch, or for work that is not training (`ledger.KINDS`)."""
        return self._ledger.spending(kind)

    def compiling(self) -> None:
        """From now on a step is compiled."""
        self._ledger.turn("compile")

    def compiled(self) -> None:
        """Steps run from now on. Sets time and totals back to 0, but not means."""
        self._ledger.turn("steps")
        self._sums = {name: pair for name, pair in self._sums.items() if name not in TOTALS}
        self._steps, self._since = 0, self._ledger.seconds()

    def report(self) -> dict[str, float]:
        """Means and rates of the steps since the last report; sets all back to 0.

        What is `OF_ONE_STEP` is that of the last of them.
        """
        now = self._ledger.seconds()
        means = {
            name: metric_value(name, total, weight)
            for name, (total, weight) in self._sums.items()
            if name not in TOTALS
        }
        totals = {name: pair for name, pair in self._sums.items() if name in TOTALS}
        waited = now["input_wait"] - self._since["input_wait"]
        seconds = now["steps"] - self._since["steps"] + waited
        if seconds <= 0 and self._rates:
            # Several steps came in at once: they count for the next report's rates.
            self._sums = totals
            return means | self._rates
        self._rates = self._rates_of(totals, seconds=seconds, waited=waited, now=now)
        self._sums = {}
        self._steps, self._since = 0, now
        return means | self._rates

    def _rates_of(
        self,
        totals: Mapping[str, np.ndarray],
        *,
        seconds: float,
        waited: float,
        now: Mapping[str, float],
    ) -> dict[str, float]:
        since_made = max(sum(now.values()) - sum(self._made.values()), 1e-9)
        seconds = seconds if seconds > 0 else since_made
        rates = {
            "steps_per_second": self._steps / seconds,
            "input_wait": waited / seconds,
            "goodput": (now["steps"] - self._made["steps"]) / since_made,
        }
        if "tokens" in totals:
            rates["tokens_per_second"] = float(totals["tokens"][0]) / seconds
        if "flops" in totals:
            rates["flops_per_second"] = float(totals["flops"][0]) / seconds
            if self._peak is not None:
                rates["mfu"] = rates["flops_per_second"] / self._peak
        return rates

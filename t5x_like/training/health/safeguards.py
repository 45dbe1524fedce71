"""The limits beyond which a run has bad numbers or stands still."""

from __future__ import annotations

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Safeguards:
    """The limits of a healthy run.

    Attributes:
      loss_spike: a step is bad if its loss is more than so many times the mean of the last 100
        steps; None for any loss.
      loss_rise: the run has diverged if that mean rises so many nats above its best, or by half of
        the best, if that is more; None for no such limit.
      baseline_margin: the share of the loss of words' frequencies by which a held-out loss must be
        below it, and later above it, before the run has diverged; None for no such comparison.
      stall_minutes: how long a step may take, or 20 times as long as is usual, if that is more; 0
        for no watching.
    """

    loss_spike: float | None = None
    loss_rise: float | None = 1.0
    baseline_margin: float | None = 0.1
    stall_minutes: float = 10.0

    @property
    def limits(self) -> tuple[float | None, float | None, float | None]:
        """The first fields of `bad_steps.Health`: spike, rise, margin."""
        return self.loss_spike, self.loss_rise, self.baseline_margin

    def check_safeguards(self) -> None:
        """Raises ValueError if a value is none of those above."""
        limits = {
            "loss_spike": (1.0, math.inf, "None or above 1"),
            "loss_rise": (0.0, math.inf, "None or above 0"),
            "baseline_margin": (0.0, 1.0, "None, or above 0 and below 1"),
        }
        for name, (low, high, needed) in limits.items():
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and low < value < high):
                raise ValueError(f"{name.upper()} must be {needed}, not {value!r}")
        if not (_is_number(self.stall_minutes) and self.stall_minutes >= 0):
            raise ValueError(f"STALL_MINUTES must be at least 0, not {self.stall_minutes!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

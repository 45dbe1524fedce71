"""What a run does about bad numbers and about standing still."""

from __future__ import annotations

import dataclasses


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
        if self.loss_spike is not None and not self.loss_spike > 1:
            raise ValueError(f"LOSS_SPIKE must be None or above 1, not {self.loss_spike!r}")
        if self.loss_rise is not None and not self.loss_rise > 0:
            raise ValueError(f"LOSS_RISE must be None or above 0, not {self.loss_rise!r}")
        if self.baseline_margin is not None and not 0 < self.baseline_margin < 1:
            raise ValueError(
                "BASELINE_MARGIN must be None, or above 0 and below 1, not "
                f"{self.baseline_margin!r}"
            )
        if not self.stall_minutes >= 0:
            raise ValueError(f"STALL_MINUTES must be at least 0, not {self.stall_minutes!r}")

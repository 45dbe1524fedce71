"""How long a run is, and how often it evaluates, saves and logs."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Periods:
    """The steps of a run, and those between evaluations, checkpoints and log lines; 0 means never.

    An event with a period also happens after the last step. A checkpoint is always saved then.
    `early_stopping` is the number of evaluations without improvement after which a run ends.
    """

    train_steps: int
    eval_period: int = 1000
    checkpoint_period: int = 1000
    log_period: int = 20
    early_stopping: int = 0

    def due(self, name: Literal["eval", "checkpoint", "log"], step: int) -> bool:
        """Whether the event `name` happens after `step` steps."""
        period = getattr(self, f"{name}_period")
        return bool(period) and (step % period == 0 or step == self.train_steps)

    def saving(self, step: int) -> bool:
        """Whether a checkpoint is saved after `step` steps."""
        return step == self.train_steps or self.due("checkpoint", step)

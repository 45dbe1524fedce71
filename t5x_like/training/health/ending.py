"""How training ends: its status, and what is said about it."""

from __future__ import annotations

from t5x_like.training.callbacks import Outcome, Status
from t5x_like.training.health.early_stopping import EarlyStopping
from t5x_like.training.periods import Periods


def status(
    step: int, periods: Periods, *, stopped_early: bool, missing: bool, by_hand: bool
) -> Status:
    """How training ends after `step` steps.

    Args:
      step: the steps taken.
      periods: how many there are to be; fewer may be asked for than the run has.
      stopped_early: whether early stopping ended it.
      missing: whether its last evaluation was left out.
      by_hand: whether Ctrl-C or the caller ended it, if it is not over.
    """
    if step >= periods.train_steps and not missing:
        return "finished"
    if stopped_early:
        return "stopped_early"
    return "interrupted" if by_hand else "preempted"


def over(step: int, periods: Periods, stopping: EarlyStopping) -> str:
    """Why there is nothing to train; "" if there is."""
    if step >= periods.train_steps:
        return f"Already finished: step {step} of {periods.train_steps}."
    if stopping.over():
        return f"{stopping} Raise EARLY_STOPPING to go on from step {step}."
    return ""


def farewell(ended: Outcome, stopping: EarlyStopping) -> str:
    """The last message of a run; "" if there is none."""
    if ended.left:
        return f"Saved step {ended.step}; run the same command to resume."
    return str(stopping) if ended.status == "stopped_early" else ""

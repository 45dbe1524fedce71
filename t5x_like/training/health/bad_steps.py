"""Judges each step: whether its numbers are finite, its loss no spike, and the run still learns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from t5x_like.core import exit_status
from t5x_like.core.protocols import metric_value
from t5x_like.training.hosts import multihost
from t5x_like.training.metrics import NonFiniteError, check_finite

WAYS = ("stop", "skip", "roll_back")
"""What follows a bad step.

`stop` ends the run. `skip` makes no update where the gradient or a metric is not finite, and goes
on. `roll_back` goes back to the newest checkpoint and takes the steps since again; a step that is
bad once more is left out.
"""
NORM_RISE = 100.0
"""How many times as large as at the start the parameters may become."""
MOST_SKIPPED = 10
"""How many steps in a row may be skipped."""

_SOON = 1000
"""After so many steps a model should know more than frequencies."""
_SAVED = ("steps", "mean", "best", "norm", "skipped", "learned")
_WINDOW = 100
"""The steps of the mean of the loss."""


class BadStepError(RuntimeError):
    """A step has numbers with which a run must not go on.

    Attributes:
      step: the step.
      of_batch: whether its batch alone may be the cause, so that the run can go on without it.
    """

    exit_status = exit_status.DIVERGED

    def __init__(self, step: int, what: str, advice: str, *, of_batch: bool) -> None:
        super().__init__(
            f"Stopped at step {step}: {what}. The last checkpoint is older and good. {advice}"
        )
        self.step, self.what, self.of_batch = step, what, of_batch


@dataclasses.dataclass
class Health:
    """What is known of the loss and the parameters so far; saved with every checkpoint.

    Attributes:
      spike: how many times its mean a loss may be; None for any.
      rise: how many nats the mean of the loss may be above its best, or half of that, if that is
        more; None for any.
      steps: the steps of this phase.
      mean: the mean of the loss over about the last 100 steps.
      best: the lowest mean so far.
      norm: the norm of the parameters when the run began.
      skipped: the number of steps in a row that made no update.
      learned: whether an evaluation was better than a model that knows frequencies alone.
    """

    spike: float | None = None
    rise: float | None = None
    steps: int = 0
    mean: float = 0.0
    best: float | None = None
    norm: float | None = None
    skipped: int = 0
    learned: bool = False

    def saved(self) -> dict[str, Any]:
        """What `restore` needs."""
        return {name: getattr(self, name) for name in _SAVED}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continues from `saved()`."""
        for name in saved.keys() & {*_SAVED}:
            setattr(self, name, saved[name])

    def new_phase(self) -> None:
        """The losses of the next steps do not compare with those so far."""
        self.steps, self.mean, self.best, self.learned = 0, 0.0, None, False

    def add(self, step: int, metrics: Mapping[str, tuple[Any, Any]]) -> None:
        """Judges a step by its metrics, {name: (sum, weight)}, which are on the host.

        Raises:
          BadStepError: it is bad, or the run has diverged.
        """
        lower = "Lower the learning rate, clip the gradient, or look at this step's batch."
        try:
            check_finite(metrics)
        except NonFiniteError as error:
            raise BadStepError(step, str(error), lower, of_batch=True) from error
        self._add_skipped(step, metrics)
        if "param_norm" in metrics:
            self._add_norm(step, float(metrics["param_norm"][0]))
        loss = metric_value("loss", *metrics["loss"]) if "loss" in metrics else float("nan")
        if loss != loss:  # no target in the batch
            return
        if self.spike is not None and self.steps >= _WINDOW and loss > self.spike * self.mean:
            what = f"its loss, {loss:.4g}, is {loss / self.mean:.3g} times the mean (LOSS_SPIKE)"
            raise BadStepError(step, what, lower, of_batch=True)
        self.steps += 1
        self.mean += (loss - self.mean) / min(self.steps, _WINDOW)
        if self.steps < _WINDOW:
            return
        self.best = self.mean if self.best is None else min(self.best, self.mean)
        if self.rise is not None and self.mean > self.best + max(self.rise, 0.5 * self.best):
            raise BadStepError(
                step,
                f"the loss has risen from {self.best:.4g} to {self.mean:.4g}, means of {_WINDOW} "
                "steps (LOSS_RISE)",
                "The run has diverged: lower the learning rate, clip the gradient, and start from "
                "a checkpoint before the rise.",
                of_batch=False,
            )

    def compare(
        self, step: int, values: Mapping[str, float], baselines: Mapping[str, float]
    ) -> str:
        """Judges an evaluation by what a model that knows frequencies alone would have.

        All processes call it; the first, which has the baselines, decides.

        Returns:
          A warning; "" for none.

        Raises:
          BadStepError: the losses were below those of such a model, and no longer are.
        """
        pairs = [
            (values[name], baselines[name])
            for name in sorted(baselines.keys() & values.keys())
            if name.endswith("loss")
        ]
        known, worse = (
            bool(multihost.everywhere("baselines", found)[0])
            for found in (bool(pairs), all(a >= b for a, b in pairs))
        )
        if not known:
            return ""
        if not worse:
            self.learned = True
            return ""
        shown = ", ".join(f"{a:.4g} where it is {b:.4g}" for a, b in pairs)
        what = f"the held-out loss is no better than that of words' frequencies ({shown})"
        if self.learned:
            raise BadStepError(
                step,
                f"{what}, and was better before",
                "The run has diverged: lower the learning rate, and start from a good checkpoint.",
                of_batch=False,
            )
        return f"After {step} steps {what}: nothing is learned yet." if step >= _SOON else ""

    def _add_skipped(self, step: int, metrics: Mapping[str, tuple[Any, Any]]) -> None:
        self.skipped = self.skipped + 1 if was_skipped(metrics) else 0
        if self.skipped > MOST_SKIPPED:
            raise BadStepError(
                step,
                f"{self.skipped} steps in a row had no finite gradient",
                "Lower the learning rate, or clip the gradient.",
                of_batch=False,
            )

    def _add_norm(self, step: int, norm: float) -> None:
        if self.norm and norm > NORM_RISE * self.norm:
            raise BadStepError(
                step,
                f"the norm of the parameters is {norm:.4g}, and was {self.norm:.4g} at first",
                "The learning rate is far too high: lower it, and start anew.",
                of_batch=False,
            )


def was_skipped(metrics: Mapping[str, tuple[Any, Any]]) -> bool:
    """Whether a step made no update."""
    return bool(metrics.get("skipped", (0, 1))[0])

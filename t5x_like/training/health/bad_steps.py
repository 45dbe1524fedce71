"""Judges each step: whether its numbers are finite, its loss no spike, and the run still learns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from t5x_like.core import exit_status
from t5x_like.core.protocols.model import metric_value
from t5x_like.training.hosts import multihost
from t5x_like.training.metrics import NonFiniteError, check_finite

WAYS = ("stop", "skip", "roll_back")
"""The ways to handle a bad step.

`stop` ends the run. `skip` makes no update where the gradient or a metric is not finite, and goes
on. `roll_back` goes back to the newest checkpoint and takes the steps since again; a step that is
bad once more is left out.
"""
NORM_RISE = 100.0
"""How many times as large as in a new model the parameters may become."""
_USUAL_STD = 0.02
MOST_SKIPPED = 10
"""How many steps in a row may be skipped."""

_SOON = 1000
"""After so many steps a model should know more than frequencies."""
_SAVED = ("steps", "mean", "best", "norm", "skipped")
_OF_EVALUATIONS = ("learned", "evaluations", "lowest")
_EVALUATIONS = 2
"""How many evaluations in a row say that a loss is learned, or lost."""
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
            f"Stopped at step {step}: {what}. All checkpoints are older and good. {advice}"
        )
        self.step, self.what, self.of_batch = step, what, of_batch


@dataclasses.dataclass
class Health:
    """The record of the loss and the parameters so far; saved with every checkpoint.

    Attributes:
      spike: how many times its mean a loss may be; None for any.
      rise: how many nats the mean of the loss may be above its best, or half of that, if that is
        more; None for any.
      steps: the steps of this phase.
      mean: the mean of the loss over about the last 100 steps.
      best: the lowest mean so far.
      norm: the norm of the parameters of a new model (`new_norm`).
      skipped: the number of steps in a row that made no update.
      margin: the share of its baseline by which an evaluation must be better or worse to count;
        None for no comparison.
      warming: whether the learning rate rises, from step to step.
      rate: the learning rate of the last step.
      learned: the held-out losses that were better than those of a model that knows frequencies.
      evaluations: {loss: evaluations in a row that were (better, worse) than such a model}.
      lowest: the lowest sum of the held-out losses so far.
    """

    spike: float | None = None
    rise: float | None = None
    margin: float | None = None
    steps: int = 0
    mean: float = 0.0
    best: float | None = None
    norm: float | None = None
    skipped: int = 0
    warming: bool = False
    rate: float = 0.0
    learned: list[str] = dataclasses.field(default_factory=list)
    evaluations: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    lowest: float | None = None

    def saved(self) -> dict[str, Any]:
        """The state that `restore` takes, as JSON has it."""
        evaluations = {name: getattr(self, name) for name in _OF_EVALUATIONS}
        return {**{name: getattr(self, name) for name in _SAVED}, "held_out": evaluations}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continues from `saved()`; earlier versions saved nothing of evaluations that counts."""
        for name in saved.keys() & {*_SAVED}:
            setattr(self, name, saved[name])
        held_out = saved.get("held_out") or {}
        self.learned = list(held_out.get("learned", ()))
        self.evaluations = {n: (a, b) for n, (a, b) in held_out.get("evaluations", {}).items()}
        self.lowest = held_out.get("lowest")

    def new_phase(self) -> None:
        """The losses of the next steps do not compare with those so far."""
        self.steps, self.mean, self.best = 0, 0.0, None
        self.learned, self.evaluations, self.lowest = [], {}, None

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
        if "learning_rate" in metrics:
            before, self.rate = self.rate, float(metrics["learning_rate"][0])
            self.warming = self.rate > before
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

        A loss is learned once two evaluations in a row are below its baseline by `margin`, and lost
        once two are above by as much: one may be so by chance, and a loss that starts at its
        baseline, as that of sentence pairs does, crosses it often. A loss that overfits while the
        others fall does not end a run. Nothing is judged while the learning rate rises.

        All processes call it; the first, which has the baselines, decides.

        Returns:
          A warning; "" for none.

        Raises:
          BadStepError: a loss that was learned is lost, and all together are above their best.
        """
        pairs = {
            name: (values[name], baselines[name])
            for name in sorted(baselines.keys() & values.keys())
            if name.endswith("loss")
        }
        lost = [] if self.margin is None or self.warming else self._lost(pairs, self.margin)
        unlearned = bool(pairs) and not self.learned and all(a >= b for a, b in pairs.values())
        ends, warns = (
            bool(multihost.everywhere("baselines", is_bad)[0]) for is_bad in (bool(lost), unlearned)
        )
        if ends:
            shown = ", ".join(f"{n} {pairs[n][0]:.4g} where it is {pairs[n][1]:.4g}" for n in lost)
            raise BadStepError(
                step,
                f"a held-out loss is above that of words' frequencies ({shown}), and was below "
                "before, by BASELINE_MARGIN and twice in a row each time",
                "The run has diverged: lower the learning rate, and start from a good checkpoint.",
                of_batch=False,
            )
        if not warns or step < _SOON:
            return ""
        shown = ", ".join(f"{a:.4g} where it is {b:.4g}" for a, b in pairs.values())
        return (
            f"After {step} steps the held-out loss is no better than that of words' frequencies "
            f"({shown}): nothing is learned yet."
        )

    def _lost(self, pairs: Mapping[str, tuple[float, float]], margin: float) -> list[str]:
        """The losses that were learned and are lost, with this evaluation; none if others fall."""
        for name, (value, baseline) in pairs.items():
            below, above = self.evaluations.get(name, (0, 0))
            below = below + 1 if value < (1 - margin) * baseline else 0
            above = above + 1 if value > (1 + margin) * baseline else 0
            self.evaluations[name] = (below, above)
            if below >= _EVALUATIONS and name not in self.learned:
                self.learned.append(name)
        if not pairs:
            return []
        total = sum(value for value, _ in pairs.values())
        room = margin * sum(baseline for _, baseline in pairs.values())
        self.lowest = total if self.lowest is None else min(self.lowest, total)
        if total <= self.lowest + room:
            return []
        return [n for n in pairs if n in self.learned and self.evaluations[n][1] >= _EVALUATIONS]

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
                f"the norm of the parameters is {norm:.4g}, over {NORM_RISE:g} times that of a new "
                f"model ({self.norm:.4g})",
                "The learning rate is far too high: lower it, and start anew.",
                of_batch=False,
            )


def new_norm(found: float, parameters: int) -> float:
    """The norm of the parameters of a new model, above whose 100-fold a run is ruined.

    Args:
      found: the norm when the run began. Models that begin near 0, as word vectors do, are taken
        for models whose parameters have a standard deviation of 0.02.
      parameters: their number.
    """
    return max(found, _USUAL_STD * parameters**0.5)


def was_skipped(metrics: Mapping[str, tuple[Any, Any]]) -> bool:
    """Whether a step made no update."""
    return bool(metrics.get("skipped", (0, 1))[0])

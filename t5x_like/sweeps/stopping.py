"""The early end of bad trials, by the median of those that went to their end."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from t5x_like.sweeps.results import Result, better
from t5x_like.training.callbacks import Callback
from t5x_like.training.checkpointing.ranking import BestMetric

LEAST = 3
"""Finished trials from which a median is taken."""


class MedianStopping(Callback):
    """Ends a trial whose best value so far is worse than the median (Golovin et al., 2017).

    At an evaluation it compares the trial's best value so far with those of the finished trials at
    their evaluation of the same number; a trial with less evaluations counts with its last. The
    paper takes running means of the finished trials in place of their best values.

    Attributes:
      ended_at: the step of the evaluation after which the trial ends; None while it goes on.
    """

    ended_at: int | None = None

    def __init__(
        self, best: BestMetric, finished: Sequence[Result], before: Sequence[float | None]
    ) -> None:
        """Compares a trial.

        Args:
          best: the metric.
          finished: the results of trials of the same task and number of examples that went to
            their end.
          before: the best value up to each evaluation that the trial had before it was resumed.
        """
        self._best = best
        curves = [[x for x in result.evaluations if x is not None] for result in finished]
        self._curves = [curve for curve in curves if curve]
        self._count = len(before)
        self._value = before[-1] if before else None

    def evaluate(self, step: int, values: Mapping[str, float]) -> None:
        """Notes an evaluation."""
        now, higher = self._best.value(values), self._best.higher
        if now is not None and (self._value is None or better(now, self._value, higher=higher)):
            self._value = now
        self._count += 1
        if len(self._curves) < LEAST:
            return
        median = statistics.median(
            curve[min(self._count, len(curve)) - 1] for curve in self._curves
        )
        if self._value is None or better(median, self._value, higher=higher):
            self.ended_at = step

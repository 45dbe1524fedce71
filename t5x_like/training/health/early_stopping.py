"""The end of a run that no longer improves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from t5x_like.training.checkpointing.ranking import BestMetric, with_phase
from t5x_like.training.hosts import multihost


class EarlyStopping:
    """Counts the evaluations since the best one.

    Evaluations without a value of the metric do not count. An evaluation of a new phase is better
    than all before it, because values of two phases do not compare.
    """

    def __init__(self, best: BestMetric, patience: int) -> None:
        """Stops after `patience` evaluations that are not better than the best; 0: never."""
        self._metric, self._patience = best, patience
        self._best: tuple[float, ...] = (np.inf,)
        self._step = self._since = 0

    def add(self, step: int, values: Mapping[str, float], *, phase: int) -> None:
        """Adds the evaluation after `step` steps, in the phase that starts after `phase` steps."""
        rank = self._metric.rank(with_phase(values, phase))
        if rank < self._best:
            self._best, self._step, self._since = rank, step, 0
        elif len(rank) > 1:
            self._since += 1

    def over(self) -> bool:
        """Whether the run ends. All processes call it: the first, which has the log, decides."""
        if not self._patience:
            return False
        return bool(multihost.everywhere("early stopping", self._since >= self._patience)[0])

    def __str__(self) -> str:
        value = self._best[-1] * (-1 if self._metric.higher else 1)
        return (
            f"Stopped early: {self._metric.name} was best at step {self._step} ({value:.4g}) and "
            f"has not improved in {self._since} evaluations (EARLY_STOPPING)."
        )

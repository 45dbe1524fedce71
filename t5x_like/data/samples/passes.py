"""Samples of a text that is planned several times, each pass over it when a run reaches it."""

from __future__ import annotations

import bisect
import sys
import threading
from collections.abc import Callable, Sized
from typing import Any

import numpy as np

from t5x_like.data.order import Epoch, Epochs, EqualEpochs
from t5x_like.data.samples.planned_samples import PlannedSamples


class Passes:
    """The samples of all passes, one pass after another. After the last comes the first again.

    A pass is planned, or its plan read, when one of its samples or a later one is asked for. It is
    an epoch of a run's order.

    Args:
      plan: makes the samples of a pass, by its number. It can be pickled.
      count: the number of passes, at least 1.
    """

    def __init__(self, plan: Callable[[int], PlannedSamples], count: int) -> None:
        self._plan, self._count = plan, count
        self._lock = threading.Lock()
        self._planned = [plan(0)]
        self._ends = [len(self._planned[0])]

    def __reduce__(self) -> tuple[Any, ...]:
        return Passes, (self._plan, self._count)

    def __bool__(self) -> bool:
        return len(self._planned[0]) > 0

    def __len__(self) -> int:
        """The number of samples in all passes, all of which are planned now."""
        self._plan_to(sys.maxsize)
        return self._ends[-1]

    def __getitem__(self, i: int) -> tuple[dict[str, np.ndarray]]:
        if i < 0 or (i >= self._ends[-1] and i >= len(self)):
            raise IndexError(f"no sample {i} among {len(self)}")
        number, begin, _ = self.epoch_of(i)
        return self._planned[number][i - begin]

    def epoch_of(self, n: int) -> Epoch:
        """The pass that holds number `n`."""
        self._plan_to(n)
        cycle, rest = 0, n
        if n >= self._ends[-1]:
            cycle, rest = divmod(n, self._ends[-1])
        number = bisect.bisect_right(self._ends, rest)
        size = len(self._planned[number])
        begin = self._ends[number] - size
        return Epoch(cycle * self._count + number, n - rest + begin, size)

    def sample_of(self, n: int) -> int:
        """The sample that number `n` is."""
        epoch = self.epoch_of(n)
        return n if epoch.number < self._count else n % len(self)

    def _plan_to(self, n: int) -> None:
        """Plans all passes up to the one that has sample `n`."""
        if n < self._ends[-1]:
            return
        with self._lock:
            while n >= self._ends[-1] and len(self._ends) < self._count:
                self._planned.append(self._plan(len(self._planned)))
                self._ends.append(self._ends[-1] + len(self._planned[-1]))


def epochs_of(samples: Sized) -> Epochs:
    """The epochs of samples: each has all of them, or all of a pass."""
    return samples if isinstance(samples, Passes) else EqualEpochs(len(samples))

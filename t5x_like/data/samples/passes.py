"""Samples of a text that is planned several times, each pass over it when a run reaches it."""

from __future__ import annotations

import bisect
import functools
import sys
import threading
from collections.abc import Callable, Sized
from typing import Any

import numpy as np

from t5x_like.data.samples.order import Epoch, Epochs, EqualEpochs
from t5x_like.data.samples.planned_samples import PlannedSamples


class Passes:
    """The samples of all passes, one pass after another. After the last comes the first again.

    A pass is planned, or its plan read, when one of its samples or a later one is asked for. It is
    an epoch of a run's order.

    Args:
      plan: makes the samples of a pass, by its number. It can be pickled.
      count: the number of passes, at least 1.
      glimpse: gives sample 0 as long as nothing is planned; it can be pickled. Without it, the
        first pass is planned now.
    """

    def __init__(
        self,
        plan: Callable[[int], PlannedSamples],
        count: int,
        *,
        glimpse: Callable[[], PlannedSamples] | None = None,
    ) -> None:
        self._plan, self._count, self._glimpse = plan, count, glimpse
        self._lock = threading.Lock()
        self._planned: list[PlannedSamples] = []
        self._edges = [0]
        if glimpse is None:
            self._plan_to(0)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Passes, glimpse=self._glimpse), (self._plan, self._count)

    @property
    def is_planned(self) -> bool:
        """Whether the first pass is."""
        return len(self._edges) > 1

    def __bool__(self) -> bool:
        self._plan_to(0)
        return len(self._planned[0]) > 0

    def __len__(self) -> int:
        """The number of samples in all passes, all of which are planned now."""
        self._plan_to(sys.maxsize)
        return self._edges[-1]

    def __getitem__(self, i: int) -> tuple[dict[str, np.ndarray]]:
        if i == 0 and self._glimpse is not None and not self.is_planned:
            return self._glimpse()[0]
        if i < 0 or (i >= self._edges[-1] and i >= len(self)):
            raise IndexError(f"no sample {i} among {len(self)}")
        number, begin, _ = self.epoch_of(i)
        return self._planned[number][i - begin]

    def epoch_of(self, n: int) -> Epoch:
        """The pass that holds number `n`."""
        self._plan_to(n)
        cycle, rest = 0, n
        if n >= self._edges[-1]:
            cycle, rest = divmod(n, self._edges[-1])
        number = bisect.bisect_right(self._edges, rest) - 1
        begin = self._edges[number]
        size = len(self._planned[number])
        return Epoch(cycle * self._count + number, n - rest + begin, size)

    def sample_of(self, n: int) -> int:
        """The sample that number `n` is."""
        if n == 0:
            return 0  # whatever is planned
        epoch = self.epoch_of(n)
        return n if epoch.number < self._count else n % len(self)

    def _plan_to(self, n: int) -> None:
        """Plans all passes up to the one that has sample `n`."""
        if n < self._edges[-1]:
            return
        with self._lock:
            while n >= self._edges[-1] and len(self._planned) < self._count:
                planned = self._plan(len(self._planned))
                self._planned.append(planned)
                self._edges.append(self._edges[-1] + len(planned))


def epochs_of(samples: Sized) -> Epochs:
    """The epochs of samples: each has all of them, or all of a pass."""
    return samples if isinstance(samples, Passes) else EqualEpochs(len(samples))

"""The bad steps of a run that goes back and on, and which of them it leaves out."""

from __future__ import annotations

import json

import jax
from etils import epath

from t5x_like.core import whole_files
from t5x_like.training.health.bad_steps import BadStepError
from t5x_like.training.hosts import multihost

FILE = "bad_steps.json"
MOST = 10
"""How many bad steps a run may have."""


class RollBacks:
    """{step: how often it was bad}, kept in the run's directory, so that a restart knows it.

    A step that was bad once is taken again: the same numbers come from the same state and batch,
    unless a chip computes wrongly. One that was bad twice is left out.
    """

    def __init__(self, model_dir: epath.Path) -> None:
        """Reads what earlier starts found.

        Raises:
          ValueError: the file is damaged.
        """
        self._path = model_dir / FILE
        self._times: dict[int, int] = {}
        if self._path.exists():
            try:
                content = json.loads(self._path.read_text())
                self._times = {int(step): int(times) for step, times in content.items()}
            except (ValueError, AttributeError, TypeError) as error:
                raise ValueError(
                    f"{self._path} is damaged ({error}): remove it, and steps that were left out "
                    "are taken again"
                ) from error

    @property
    def times(self) -> dict[int, int]:
        """{step: how often it was bad}."""
        return dict(self._times)

    def add(self, error: BadStepError) -> bool:
        """Notes a bad step; False if the run must stop instead of going back. All call it."""
        if not error.of_batch or self._times.get(error.step, 0) > 1:
            return False
        self._times[error.step] = self._times.get(error.step, 0) + 1
        if len(self._times) > MOST:
            return False
        if jax.process_index() == 0:
            text = json.dumps({str(step): times for step, times in self._times.items()})
            whole_files.write(self._path, text.encode())
        multihost.barrier("bad step noted")
        return True

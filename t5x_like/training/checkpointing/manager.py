"""Orbax's manager of checkpoints, with errors of a save that are known as soon as they happen."""

from __future__ import annotations

import time
from typing import Any

import jax
import orbax.checkpoint as ocp

from t5x_like.training.checkpointing import quiet_saves
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError

_SECONDS = 0.05


class Manager(ocp.CheckpointManager):
    """Orbax's, without its wait of minutes after an error of one process.

    There the process waits for the others before it raises, and they wait for its part of the step.
    `_wait_for_checkpointers` is private to Orbax: if a release does not call it, the wait is back.
    """

    _failure: BaseException | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        quiet_saves.quieten()
        super().__init__(*arguments, **options)

    def _wait_for_checkpointers(self) -> None:
        try:
            super()._wait_for_checkpointers()
        except BaseException as error:
            self._failure = error
            raise

    @property
    def is_stuck(self) -> bool:
        """Whether its threads wait for processes that wait for this one."""
        return self._failure is not None and jax.process_count() > 1

    def finish(self, step: int) -> None:
        """Waits until a step is saved.

        Raises:
          CheckpointError: it cannot be.
        """
        while self.is_saving_in_progress() and not self._failure:
            time.sleep(_SECONDS)
        if self._failure:
            raise CheckpointError(
                f"Step {step} could not be saved in {self.directory}: {self._failure}. Those "
                "before it are whole: the same command resumes."
            ) from self._failure
        self.wait_until_finished()

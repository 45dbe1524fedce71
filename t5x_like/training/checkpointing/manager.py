"""Orbax's manager of checkpoints, with errors of a save that are known as soon as they happen."""

from __future__ import annotations

import logging
import time
from typing import Any

import jax
import orbax.checkpoint as ocp

from t5x_like.training.checkpointing import quiet_saves
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError

logger = logging.getLogger(__name__)

_SECONDS = 0.05


class Manager(ocp.CheckpointManager):
    """Orbax's, without its wait of minutes after an error of one process.

    There the process waits for the others before it raises, and they wait for its part of the step.
    `_wait_for_checkpointers` is private to Orbax: if a release does not call it, the wait is back.
    So is `_get_old_steps_to_remove`: the steps that its policy does not keep.
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

    def remove_surplus(self) -> None:
        """Removes the steps that are not to be kept; all processes call it.

        Orbax does so after a save alone: a run that is killed in between leaves a step too many.
        """
        for step in self._get_old_steps_to_remove():
            if jax.process_index() == 0:
                logger.warning(
                    "Removes step %d of %s: those to keep are others.", step, self.directory
                )
            self.delete(step)

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

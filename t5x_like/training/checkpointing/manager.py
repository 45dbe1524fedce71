"""Orbax's manager of checkpoints, with errors of a save that are known as soon as they happen."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from t5x_like.training.checkpointing import quiet_saves
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError

logger = logging.getLogger(__name__)

_SECONDS = 0.05
_SLICE_BYTES = 2**20
_LONGEST_SAVE = 7 * 24 * 3600
"""Seconds by the system's clock, which may jump: Orbax ends a save that takes longer.

Processes that are lost or stand still are noticed elsewhere (`hosts.peers`, `hosts.watchdog`).
"""


class Manager(ocp.CheckpointManager):
    """Orbax's, without its wait of minutes after an error of one process.

    There the process waits for the others before it raises, and they wait for its part of the step.
    `_wait_for_checkpointers` is private to Orbax: if a release does not call it, the wait is back.
    So is `_get_old_steps_to_remove`: the steps that its policy does not keep. So is the least size
    of the slices of an array that several devices hold: without it each device cuts its slice of
    the smallest array, by a program for each shape, which takes longer than to write it.
    """

    _failure: BaseException | None = None

    def __init__(self, directory: epath.Path, *, keep: int, rank: Callable[[Any], Any]) -> None:
        """Opens a directory to keep the newest `keep` steps and the one of the least rank.

        Raises:
          CheckpointError: the description of a step there is damaged.
        """
        quiet_saves.quieten()
        arrays = ocp.type_handlers.get_type_handler(jax.Array)
        arrays._min_slice_bytes_for_replica_parallel = _SLICE_BYTES
        best = BestN(n=1, get_metric_fn=rank, reverse=True, keep_checkpoints_without_metrics=False)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=AnyPreservationPolicy([LatestN(keep), best]),
            best_fn=rank,  # else Orbax does not save the metrics
            best_mode="min",
            cleanup_tmp_directories=True,
            async_options=ocp.AsyncOptions(
                timeout_secs=_LONGEST_SAVE,
                # Else threads wait for minutes for a folder that could not be made.
                create_directories_asynchronously=False,
            ),
        )
        try:
            super().__init__(directory, options=options)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError, OSError) as error:
            # A time that is none is the one error of a step's description that has a number.
            if isinstance(error, OSError) and error.errno != errno.EOVERFLOW:
                raise
            raise CheckpointError(
                f"Orbax cannot open {directory}: {error}. A file _CHECKPOINT_METADATA of a "
                "step is damaged, which nothing else reads: move it elsewhere."
            ) from error

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

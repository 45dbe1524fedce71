"""Damaged steps: how they are found and set aside, and how others become checkable."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence

import jax
from etils import epath

from t5x_like.core.buckets import storage
from t5x_like.training.checkpointing import checksums
from t5x_like.training.checkpointing.ranking import METRICS, saved_metrics
from t5x_like.training.hosts import multihost

logger = logging.getLogger(__name__)

_FOLDER = "damaged"


def is_whole(step: epath.Path, under: str) -> bool:
    """Whether all processes together find no damage of files below `under`; logs what they find."""
    damaged = checksums.verify(
        step, under=under, process=jax.process_index(), processes=jax.process_count()
    )
    for line in damaged:
        logger.warning(
            "Skipping damaged checkpoint step %s of %s: %s", step.name, step.parent, line
        )
    whole = multihost.everywhere(
        f"files of step {step.name} checked", not damaged, timeout_s=multihost.LONG_S
    )
    return bool(whole.all())


def make_checkable(step: epath.Path) -> None:
    """Writes the checksums of a good step whose run was killed before it did."""
    if multihost.everywhere("checksums complete", checksums.complete(step)).all():
        return
    if jax.process_index() == 0:
        checksums.remove(step)
    multihost.barrier("incomplete checksums removed")
    checksums.write(step, process=jax.process_index(), processes=jax.process_count())


def set_aside(directory: epath.Path, steps: Sequence[int]) -> None:
    """Moves steps to `damaged/`, where nothing looks for steps; process 0's list counts."""
    multihost.barrier("damaged checkpoints listed")
    if jax.process_index() == 0:
        for step in steps:
            target = directory / _FOLDER / f"{step}-{uuid.uuid4().hex[:8]}"
            storage.move(directory / str(step), target)
            logger.warning("Moved step %d to %s", step, target)
    multihost.barrier("damaged checkpoints moved")


def set_metrics_aside(directory: epath.Path, steps: Sequence[int]) -> None:
    """Moves damaged metrics to `damaged/`: Orbax reads all when it opens the directory.

    They only rank a step, which stays.
    """
    if jax.process_index() == 0:
        for step in steps:
            try:
                saved_metrics(directory / str(step))
            except ValueError as error:
                target = directory / _FOLDER / f"{step}-{METRICS}-{uuid.uuid4().hex[:8]}"
                storage.move(directory / str(step) / METRICS, target)
                logger.warning("Step %d has no rank: %s; moved to %s", step, error, target)
    multihost.barrier("damaged metrics moved")

"""Room for a checkpoint on a disk: checked before it is written, and said in one sentence."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from etils import epath

from t5x_like.core import exit_status
from t5x_like.core.buckets import storage
from t5x_like.core.whole_files import ADVICE, FULL, error_number
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError
from t5x_like.training.hosts import multihost

_SHARE = 0.9
"""Of the bytes of a state, what its files take at least: they are compressed a little."""


class DiskFullError(CheckpointError):
    """A disk has no room for a checkpoint; those before it are whole."""

    exit_status = exit_status.NO_ROOM


def check(directory: epath.Path, items: Mapping[str, Any], *, step: int) -> None:
    """Checks that the disk has room for the items of a step; buckets always have.

    Raises:
      DiskFullError: in all processes, if it lacks room for one of them.
    """
    if storage.is_url(directory):
        return
    needed = int(_SHARE * sum(leaf.nbytes for leaf in jax.tree.leaves(dict(items))))
    free = shutil.disk_usage(directory).free
    if not multihost.everywhere("room for a checkpoint", free >= needed).all():
        raise DiskFullError(
            f"No room for step {step} in {directory}: it needs {needed / 1e9:.3g} GB, and "
            f"{free / 1e9:.3g} GB are free. {_advice(directory)}"
        )


@contextlib.contextmanager
def explained(directory: epath.Path) -> Iterator[None]:
    """Turns errors of writing into one sentence.

    Raises:
      DiskFullError: in place of an error of a full disk.
      CheckpointError: in place of another error of the operating system.
    """
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:
        number = error_number(error)
        if number is None:
            raise
        reason = os.strerror(number)
        if number in FULL:
            raise DiskFullError(
                f"No room for a checkpoint in {directory} ({reason}). {_advice(directory)}"
            ) from error
        raise CheckpointError(
            f"Cannot write a checkpoint in {directory} ({reason}): {ADVICE[number]}."
            + " Earlier checkpoints are whole: the same command resumes." * _has_any(directory)
        ) from error


def _advice(directory: epath.Path) -> str:
    if not _has_any(directory):
        return "Make room, and run the same command again."
    return (
        "Earlier checkpoints are whole. Make room, or keep fewer (CHECKPOINTS_KEPT), and run the "
        "same command again."
    )


def _has_any(directory: epath.Path) -> bool:
    """Whether there is a checkpoint: an import, or a run that has just begun, has none."""
    try:
        return any(path.name.isdigit() for path in directory.iterdir())
    except OSError:
        return True

"""Reads a step's items, and tells damage, for which there are other steps, from what may pass."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from t5x_like.core import whole_files
from t5x_like.training.checkpointing import checksums, quiet_saves
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError
from t5x_like.training.checkpointing.lazy_arrays import lazy_tree, read_once
from t5x_like.training.hosts import multihost

logger = logging.getLogger(__name__)

_GOOD, _DAMAGED, _FAILED = range(3)
_OF_CONTENT = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    FileNotFoundError,
    IsADirectoryError,
    LookupError,
    NotADirectoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The errors that Orbax raises where files are not as it wrote them: its parts check little."""
_OF_SYSTEM = re.compile(
    r"\[OS error|\b(ABORTED|CANCELLED|DEADLINE_EXCEEDED|INTERNAL|PERMISSION_DENIED|"
    r"RESOURCE_EXHAUSTED|UNAUTHENTICATED|UNAVAILABLE|UNKNOWN):"
)
"""Parts of TensorStore's errors, all ValueErrors, of disks, networks and rights."""
_DETAILS = re.compile(r"\s+\[(source locations|tensorstore_spec)|\n")
_LINE = 400


def items(step: epath.Path, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The wanted items; None, with a message, if they are damaged. All processes call it.

    Args:
      step: the directory of a step whose files fit their checksums, as far as it has any.
      wanted: {item: abstract tree}.

    Raises:
      CheckpointError: they cannot be read, which may pass: this says nothing of the files.
      ProcessError: another process cannot read them.
    """
    return _judged(step, wanted, _restored)


def lazy_items(step: epath.Path, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Like `items`, of `LazyArray`; each array is read once, as only this finds all damage."""
    return _judged(step, wanted, _opened)


def _restored(item: epath.Path, tree: Any) -> Any:
    # Each process alone: where one fails, Orbax would let the others wait for it.
    me = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(primary_host=me, active_processes={me})
    with ocp.StandardCheckpointer(multiprocessing_options=alone) as reader:
        return reader.restore(item, tree)


def _opened(item: epath.Path, tree: Any) -> Any:
    opened = lazy_tree(item, tree)
    read_once(opened)
    return opened


def _judged(
    step: epath.Path, wanted: Mapping[str, Any], read: Callable[[epath.Path, Any], Any]
) -> dict[str, Any] | None:
    """The items of a step; None, in all processes, if they are damaged for one of them."""
    quiet_saves.quieten()
    if not checksums.complete(step):
        logger.warning(
            "Step %s of %s cannot be checked: the run ended before its checksums were saved.",
            step.name,
            step.parent,
        )
    restored: dict[str, Any] = {}
    failure: Exception | None = None
    for name, tree in wanted.items():
        try:
            restored[name] = _twice(functools.partial(read, step / name, tree))
        except Exception as error:  # Orbax raises whatever its parts raise
            failure = error
            where = f"{name} cannot be read: {_line(error)}"
            break
    state = _GOOD if failure is None else _DAMAGED if _is_damage(failure, step) else _FAILED
    states = multihost.gathered(
        f"step {step.name} read", np.array(state), timeout_s=multihost.LONG_S
    )
    if state == _FAILED:
        raise CheckpointError(
            f"Step {step.name} of {step.parent}: {where}. This may pass, so no older step is taken "
            "in its place: run the same command again, or move the step elsewhere"
        ) from failure
    if (states == _FAILED).any():
        failed = ", ".join(map(str, np.flatnonzero(states == _FAILED)))
        raise multihost.ProcessError(
            f"process(es) {failed} cannot read step {step.name} of {step.parent}: see their logs"
        )
    if state == _DAMAGED:
        logger.warning(
            "Skipping damaged checkpoint step %s of %s: %s", step.name, step.parent, where
        )
    return restored if (states == _GOOD).all() else None


def _twice(read: Callable[[], Any]) -> Any:
    """Reads once more where it fails: bits that flip on their way are others the next time."""
    with contextlib.suppress(*_OF_CONTENT):
        return read()
    return read()


def _is_damage(error: BaseException, step: epath.Path) -> bool:
    """Whether an error is about the content of files, which stays, and not about reading them."""
    causes = [*whole_files.chain(error)]
    passing = any(
        isinstance(cause, OSError | MemoryError) and not isinstance(cause, _OF_CONTENT)
        for cause in causes
    )
    of_system = any(_OF_SYSTEM.search(str(cause)) for cause in causes)
    return isinstance(error, _OF_CONTENT) and not passing and not of_system and step.exists()


def _line(error: BaseException) -> str:
    """An error in one line, without the details of TensorStore."""
    text = _DETAILS.split(str(error), maxsplit=1)[0][:_LINE]
    return f"{type(error).__name__}: {text}"

"""The arrays of a step, as Orbax reads them; which of its errors say that the files are damaged."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orbax.checkpoint as ocp
from etils import epath

from t5x_like.core import whole_files
from t5x_like.training.checkpointing import checksums
from t5x_like.training.hosts import multihost

logger = logging.getLogger(__name__)

_OF_FILES = (AttributeError, EOFError, LookupError, TypeError, ValueError)
"""What parsers raise about what they read; the shapes were compared with the model's before."""
_OF_THE_MOMENT = (
    "ABORTED",
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
)
"""TensorStore's words for what may be gone when it is tried again."""
_LONGEST = 300


def read_items(step: epath.Path, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The wanted items of a step, whose processes agree; None, with a message, if one is damaged.

    Raises:
      Exception: of Orbax, about what is not in the files: memory, permissions, the network.
    """
    if not checksums.complete(step):
        logger.warning(
            "Step %s of %s cannot be checked: the run ended before its checksums were saved.",
            step.name,
            step.parent,
        )
    items: dict[str, Any] | None = None
    try:
        with ocp.StandardCheckpointer() as reader:
            items = {name: reader.restore(step / name, tree) for name, tree in wanted.items()}
    except Exception as error:
        if not tells_of_damage(error):
            raise
        said = " ".join(str(error).split())
        logger.warning(
            "Skipping damaged checkpoint step %s of %s: Orbax cannot read it (%s: %s)",
            step.name,
            step.parent,
            type(error).__name__,
            said if len(said) <= _LONGEST else f"{said[:_LONGEST]}...",
        )
    read = multihost.everywhere(
        f"step {step.name} read", items is not None, timeout_s=multihost.LONG_S
    )
    return items if read.all() else None


def tells_of_damage(error: BaseException) -> bool:
    """Whether an error of reading says that the files are not what was saved.

    Another attempt may do without all others: a good step is not to be passed over for them.
    """
    if whole_files.error_number(error) is not None:
        return False
    if isinstance(error, FileNotFoundError):
        return True
    if not isinstance(error, _OF_FILES):
        return False
    return not any(word in str(error) for word in _OF_THE_MOMENT)

"""The JSON of saved steps: the run's metadata, the arrays of each step, and where others are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from etils import epath

from t5x_like.core import whole_files
from t5x_like.training.checkpointing.checkpoint_items import (
    CheckpointError,
    check_number,
    checked_document,
)


def document(directory: epath.Path, step: int) -> dict[str, Any]:
    """The JSON of a step that is saved below a directory.

    Raises:
      CheckpointError: it is damaged, or that of another step.
    """
    path = directory / str(step) / "metadata" / "metadata"
    try:
        content = checked_document(whole_files.read_json(path))
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise CheckpointError(f"damaged checkpoint: {path}: {error}") from error
    check_number(directory / str(step), content.get("step", step))
    return content


def newest(directory: epath.Path, candidates: Iterable[int]) -> tuple[int, dict[str, Any]]:
    """The first of the steps whose document is readable; raises the first one's error."""
    failure: CheckpointError | None = None
    for step in candidates:
        try:
            return step, document(directory, step)
        except CheckpointError as error:
            failure = failure or error
    assert failure is not None  # for the type checker: there is a candidate
    raise failure

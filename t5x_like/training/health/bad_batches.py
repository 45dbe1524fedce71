"""The batches of bad steps, kept to be looked at."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import jax
import numpy as np
from etils import epath

from t5x_like.core import whole_files
from t5x_like.training.hosts import multihost

FOLDER = "bad_batches"
"""Their folder in a run."""
MOST = 20
"""How many are kept."""

_NAME = re.compile(r"step_(\d+)\.npz")


def write(model_dir: epath.Path, step: int, batch: Mapping[str, jax.Array]) -> epath.Path | None:
    """Writes the batch of a step: {name: [batch_size, ...]}, whole numbers or float32.

    All processes call it; the first one writes.

    Returns:
      The file; None if there are enough.
    """
    folder = model_dir / FOLDER
    arrays: dict[str, Any] = {
        name: multihost.whole("the bad batch", value) for name, value in batch.items()
    }
    path = folder / f"step_{step}.npz"
    if jax.process_index() or (folder.exists() and len([*folder.iterdir()]) >= MOST):
        return path if path.exists() else None
    for name, value in arrays.items():
        if value.dtype.kind not in "iub":  # other libraries do not know bfloat16
            arrays[name] = value.astype(np.float32)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    folder.mkdir(parents=True, exist_ok=True)
    whole_files.write(path, content.getvalue())
    return path


def step_of(path: PurePath) -> int:
    """The step whose batch a file holds.

    Raises:
      ValueError: it is not such a file.
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path} is not a batch of a bad step: its name is not step_<number>.npz")
    return int(match[1])


def read(path: epath.Path) -> dict[str, np.ndarray]:
    """The batch in a file.

    Raises:
      ValueError: it is damaged, or no such file.
    """
    step_of(path)
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is damaged: {error}") from error

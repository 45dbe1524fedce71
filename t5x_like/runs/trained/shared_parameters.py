"""Parameters that runs beside one base have in common: in memory once, for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from etils import epath

from t5x_like.core.buckets import storage
from t5x_like.runs import run_directory
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.checkpointing.lazy_arrays import LazyArray
from t5x_like.training.optimization.parameter_paths import by_path

Place = tuple[str, tuple[str, ...]]
"""The directory of an item of a checkpoint, and the keys of an array in it."""
Shared = Mapping[Place, jax.Array]


def of_run(directory: str, step: int, params: Any) -> Shared:
    """{place: array} of the parameters that a step of a run has left to its base.

    Raises:
      ValueError: it has left none, so that it has nothing in common with other runs.
    """
    checkpoints = Checkpoints(run_directory.checkpoints(storage.path(directory)))
    arrays = by_path(params)
    shared = {
        (str(epath.Path(base.step) / base.item), tuple(there.split("."))): arrays[path]
        for base in checkpoints.bases(step=step) or ()
        for path, there in base.parameters.items()
    }
    if not shared:
        raise ValueError(
            f"{directory} has all of its parameters itself: only runs whose checkpoints leave them "
            "to a base, such as those of --method lora, have any in common"
        )
    return shared


def read(params: Any, shared: Shared, *, directory: str) -> Any:
    """Parameters of which those that are in memory already are not read again.

    Args:
      params: a nested dict of `LazyArray`.
      shared: what is in memory.
      directory: where the parameters are from, for errors.

    Raises:
      ValueError: none of them is in memory: it is a run beside another base.
    """
    count = 0

    def one(leaf: LazyArray) -> jax.Array:
        nonlocal count
        known = shared.get((str(leaf.directory), leaf.path))
        if known is None or known.sharding != leaf.abstract.sharding:
            return leaf.read()
        count += 1
        return known

    read = jax.tree.map(one, params, is_leaf=lambda leaf: isinstance(leaf, LazyArray))
    if not count:
        raise ValueError(f"{directory} has another base: open it by itself")
    return read

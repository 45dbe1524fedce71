"""Arrays of a checkpoint that are read one by one, whenever they are asked for."""

from __future__ import annotations

import dataclasses
import gc
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath


@dataclasses.dataclass(frozen=True)
class LazyArray:
    """One saved array: NumPy reads it, again each time.

    Attributes:
      directory: of the checkpoint's item.
      path: keys of the nested dict that lead to it.
      abstract: shape, dtype and sharding.
    """

    directory: epath.Path
    path: tuple[str, ...]
    abstract: jax.ShapeDtypeStruct

    @property
    def shape(self) -> tuple[int, ...]:
        return self.abstract.shape

    @property
    def dtype(self) -> Any:
        return self.abstract.dtype

    def read(self) -> jax.Array:
        """The array, laid out as the sharding says."""
        wanted: Any = self.abstract
        for key in reversed(self.path):
            wanted = {key: wanted}
        arguments = ocp.args.PyTreeRestore(
            wanted,
            restore_args=ocp.checkpoint_utils.construct_restore_args(wanted),
            partial_restore=True,
        )
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
            found = reader.restore(self.directory, args=arguments)
        gc.collect(1)  # Young cycles of Orbax's own hold what was read before.
        for key in self.path:
            found = found[key]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        return np.asarray(self.read(), dtype)


def lazy_tree(directory: epath.Path, abstract: Any) -> Any:
    """The arrays of an item, a nested dict, in place of their abstract ones."""

    def one(path: tuple, leaf: jax.ShapeDtypeStruct) -> LazyArray:
        return LazyArray(directory, tuple(entry.key for entry in path), leaf)

    return jax.tree_util.tree_map_with_path(one, abstract)

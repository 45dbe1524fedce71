"""Arrays of a checkpoint that are read one by one, when they are needed."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from t5x_like.training.checkpointing.checkpoint_items import CheckpointError


@dataclasses.dataclass(frozen=True)
class LazyArray:
    """One saved array; each conversion to NumPy reads it again.

    Attributes:
      directory: the directory of the checkpoint's item.
      path: the keys of the nested dict that lead to it.
      abstract: its shape, dtype and sharding.
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
        """The array, with the sharding of `abstract`.

        Raises:
          CheckpointError, OSError: it cannot be read.
        """
        try:
            return self.restored()
        except OSError:
            raise
        except Exception as error:  # Orbax raises whatever its parts raise
            raise CheckpointError(
                f"{'/'.join(self.path)} of {self.directory} cannot be read: {error!r}"
            ) from error

    def restored(self) -> jax.Array:
        """Like `read`, with Orbax's own errors; ValueError if the item has no such array."""
        wanted: Any = self.abstract
        for key in reversed(self.path):
            wanted = {key: wanted}
        arguments = ocp.args.PyTreeRestore(
            wanted,
            restore_args=ocp.checkpoint_utils.construct_restore_args(wanted),
            partial_restore=True,
        )
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
            part = reader.restore(self.directory, args=arguments)
        gc.collect(1)  # Young reference cycles of Orbax hold the arrays that were read before.
        for key in self.path:
            part = part[key]
        if not isinstance(part, jax.Array):  # Orbax gives back what was asked for
            raise ValueError(f"{'/'.join(self.path)} is not there")
        return part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        return np.asarray(self.read(), dtype)


def read_lazy(tree: Any) -> Any:
    """The tree with arrays in place of its lazy ones; all processes call it."""
    is_lazy: Callable[[Any], bool] = lambda leaf: isinstance(leaf, LazyArray)  # noqa: E731
    return jax.tree.map(lambda leaf: leaf.read() if is_lazy(leaf) else leaf, tree, is_leaf=is_lazy)


def lazy_tree(directory: epath.Path, abstract: Any) -> Any:
    """A nested dict of lazy arrays, in place of the abstract arrays of an item."""

    def one(path: tuple, leaf: jax.ShapeDtypeStruct) -> LazyArray:
        return LazyArray(directory, tuple(entry.key for entry in path), leaf)

    return jax.tree_util.tree_map_with_path(one, abstract)

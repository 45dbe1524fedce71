"""Arrays of a checkpoint that are read one by one, when they are needed."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from t5x_like.training.checkpointing.checkpoint_items import CheckpointError

_BYTES_AT_ONCE = 64 * 2**20


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
            return restored([self])[0]
        except OSError:
            raise
        except Exception as error:  # Orbax raises whatever its parts raise
            raise CheckpointError(
                f"{'/'.join(self.path)} of {self.directory} cannot be read: {error!r}"
            ) from error

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        return np.asarray(self.read(), dtype)


def restored(arrays: Sequence[LazyArray]) -> list[jax.Array]:
    """Arrays of one item, in their order, with Orbax's own errors.

    Raises:
      ValueError: the item has no such array.
    """
    wanted: dict[str, Any] = {}
    for array in arrays:
        *keys, last = array.path
        functools.reduce(lambda part, key: part.setdefault(key, {}), keys, wanted)[last] = (
            array.abstract
        )
    arguments = ocp.args.PyTreeRestore(
        wanted,
        restore_args=ocp.checkpoint_utils.construct_restore_args(wanted),
        partial_restore=True,
    )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        part = reader.restore(arrays[0].directory, args=arguments)
    gc.collect(1)  # Young reference cycles of Orbax hold the arrays that were read before.
    values = [functools.reduce(operator.getitem, array.path, part) for array in arrays]
    for array, value in zip(arrays, values, strict=True):
        if not isinstance(value, jax.Array):  # Orbax gives back what was asked for
            raise ValueError(f"{'/'.join(array.path)} is not there")
    return values


def read_once(tree: Any) -> None:
    """Reads every array of a lazy tree of one item, a few at a time, and keeps none.

    Raises:
      Exception: Orbax's own errors; ValueError if the item lacks an array.
    """
    together: list[LazyArray] = []
    size = 0
    for array in jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, LazyArray)):
        of_array = array.dtype.itemsize * math.prod(array.shape)
        if together and size + of_array > _BYTES_AT_ONCE:
            restored(together)
            together, size = [], 0
        together.append(array)
        size += of_array
    if together:
        restored(together)


def read_lazy(tree: Any) -> Any:
    """The tree with arrays in place of its lazy ones; all processes call it."""
    is_lazy: Callable[[Any], bool] = lambda leaf: isinstance(leaf, LazyArray)  # noqa: E731
    return jax.tree.map(lambda leaf: leaf.read() if is_lazy(leaf) else leaf, tree, is_leaf=is_lazy)


def lazy_tree(directory: epath.Path, abstract: Any) -> Any:
    """A nested dict of lazy arrays, in place of the abstract arrays of an item."""

    def one(path: tuple, leaf: jax.ShapeDtypeStruct) -> LazyArray:
        return LazyArray(directory, tuple(entry.key for entry in path), leaf)

    return jax.tree_util.tree_map_with_path(one, abstract)

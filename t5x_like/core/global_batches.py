"""Batches over a mesh: which rows belong to which process, and arrays made of them."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np

from t5x_like.core.partitioning import Layout


def check_batch(layout: Layout, batch_size: int, *, microbatches: int = 1) -> None:
    """Raises ValueError unless every microbatch splits evenly over the mesh."""
    unit = layout.batch_shards * microbatches
    if batch_size < 1 or batch_size % unit:
        below, above = batch_size - batch_size % unit, batch_size + -batch_size % unit
        nearest = " or ".join(str(size) for size in dict.fromkeys((below, above)) if size > 0)
        raise ValueError(
            f"Batch size {batch_size} does not split over mesh {dict(layout.mesh.shape)} with "
            f"{microbatches} microbatch(es): it must be a multiple of {unit} "
            f"({layout.batch_shards} batch shards x {microbatches}). Nearest: {nearest or unit}."
        )


def process_rows(layout: Layout, batch_size: int) -> np.ndarray:
    """Rows of the global batch that this process's devices hold: int64, ascending.

    Not "slice p of P": where the tensor axis crosses processes they hold the same rows.
    """
    index_map = layout.rows((batch_size,)).addressable_devices_indices_map((batch_size,))
    slices = {index[0].indices(batch_size) for index in index_map.values() if index is not None}
    return np.unique(np.concatenate([np.arange(*bounds) for bounds in slices]))


def to_global(
    layout: Layout, local: Mapping[str, np.ndarray], *, rows: np.ndarray, batch_size: int
) -> dict[str, jax.Array]:
    """Arrays over the whole mesh from this process's rows.

    Args:
      layout: where they go.
      local: {name: [len(rows), ...]}; row i is row `rows[i]` of the global batch.
      rows: as `process_rows` gives them.
      batch_size: rows of the global batch.

    Raises:
      ValueError: an array does not have one row for each of `rows`.
    """

    def one(name: str, x: np.ndarray) -> jax.Array:
        if x.shape[:1] != rows.shape:
            raise ValueError(f"Feature {name!r} has shape {x.shape}, but {len(rows)} are expected.")
        shape = (batch_size, *x.shape[1:])

        def shard(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None, "an array with a batch dimension is not replicated by None"
            first, stop, _ = index[0].indices(batch_size)
            start = int(np.searchsorted(rows, first))
            return x[start : start + stop - first]

        return jax.make_array_from_callback(shape, layout.rows(shape), shard)

    return {name: one(name, x) for name, x in local.items()}


class ToDevice:
    """Converts this process's rows of a batch to global arrays.

    Attributes:
      rows: the numbers of these rows, as `process_rows` gives them.
    """

    def __init__(self, layout: Layout, batch_size: int) -> None:
        self._layout, self._batch_size = layout, batch_size
        self.rows = process_rows(layout, batch_size)

    def __call__(self, local: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        return to_global(self._layout, local, rows=self.rows, batch_size=self._batch_size)

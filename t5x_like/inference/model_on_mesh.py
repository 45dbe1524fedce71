"""A model, and the mesh that its parameters lie on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from t5x_like.core import global_batches
from t5x_like.core.partitioning import Layout


@dataclasses.dataclass(frozen=True)
class ModelOnMesh:
    """A model and its layout; None where it lies on one device."""

    model: Any
    layout: Layout | None = None

    def rows(self, wanted: int) -> int:
        """The least number of rows, from `wanted` on, that the mesh divides."""
        shards = 1 if self.layout is None else self.layout.batch_shards
        return -(-wanted // shards) * shards

    def __call__(
        self, function: Callable[..., Any], batch: Mapping[str, np.ndarray], /, **options: Any
    ) -> Any:
        """`function(model, batch)`, with the batch split over the mesh."""
        if self.layout is None:
            return function(self.model, batch, **options)
        size = len(next(iter(batch.values())))
        rows = global_batches.process_rows(self.layout, size)
        placed = global_batches.to_global(self.layout, batch, rows=rows, batch_size=size)
        with self.layout.active():
            return function(self.model, placed, **options)

"""Held-out metrics: sums and weights over batches, divided once at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from t5x_like.protocols import Batch, Metrics


def evaluate(
    step: Callable[[Any, Batch], Metrics], params: Any, batches: Iterable[Batch]
) -> dict[str, float]:
    """Weighted means of a model's metrics over batches.

    Args:
      step: (params, global batch) -> {name: (sum, weight)}, both scalars.
      params: the model's parameters.
      batches: global batches; rows that must not count carry zero loss weights.

    Returns:
      {name: sum of sums / sum of weights}; a name whose weights are all zero is nan.
    """
    totals: dict[str, np.ndarray] = {}
    for batch in batches:
        for name, pair in jax.device_get(step(params, batch)).items():
            # Float64 on the host: a sum over many batches must not lose the small ones.
            totals[name] = totals.get(name, np.zeros(2)) + np.asarray(pair, np.float64)
    return {name: float(s / w) if w else float("nan") for name, (s, w) in totals.items()}

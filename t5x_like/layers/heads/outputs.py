"""Marks on the last matrix of a head: its products are scores of labels, not states."""

from __future__ import annotations

from t5x_like.layers.basics.modules import Linear


def output(linear: Linear) -> Linear:
    """Marks the matrix of scores, which Muon leaves to AdamW (`core.parameters.is_hidden`)."""
    linear.kernel.set_metadata("hidden", False)
    return linear

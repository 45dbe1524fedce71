"""A saved model with the changes of its adapters in its own matrices."""

from __future__ import annotations

import dataclasses

from flax import nnx

from t5x_like.layers.adapters import merging
from t5x_like.runs import saved_model
from t5x_like.runs.saved_model import SavedModel


def without_adapters(saved: SavedModel) -> SavedModel:
    """The model as it was before a run adapted it, with parameters that give the same answers.

    Raises:
      ValueError: its adapters are more than other matrices would be.
    """
    if not merging.has_adapters(saved.model):
        return saved
    make = saved_model.constructor(saved.directory, step=saved.step)
    model = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    return dataclasses.replace(
        saved,
        model=model if saved.task_head is None else model.of_task(saved.task_head),
        params=merging.merged(saved.model, saved.params),
    )

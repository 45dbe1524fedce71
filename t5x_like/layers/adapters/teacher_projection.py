"""A matrix that makes a student's states as wide as its teacher's; it is not a part of answers."""

from __future__ import annotations

from typing import Any

from flax import nnx

from t5x_like.layers.basics.modules import Linear

NAME = "teacher_projection"
"""The attribute of the model that has it."""
_NORMAL = nnx.initializers.normal(0.02)


def adapt(model: Any, *, rngs: nnx.Rngs, width: int) -> Any:
    """The model with a projection of its states (TinyBERT, Jiao et al., 2020, equation 8).

    Args:
      model: a body with a head, which is changed.
      rngs: the source of random numbers.
      width: the units of the teacher's states.
    """
    config = model.config
    model.teacher_projection = Linear(
        (config.d_model, width),
        ("embed", None),
        init=_NORMAL,
        dtype=config.dtype,
        rngs=rngs,
        bias=True,
    )
    return model

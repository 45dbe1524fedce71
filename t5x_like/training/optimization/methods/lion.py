"""Lion: signs of an average of gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import optax

from t5x_like.core.calls import remember_call
from t5x_like.training.optimization.optimizers import Optimizer, with_rate
from t5x_like.training.optimization.schedules import Schedule, check_rate
from t5x_like.training.optimization.weight_decay import decay_mask


@remember_call
def lion(
    learning_rate: float | Schedule,
    *,
    b1: float = 0.9,
    b2: float = 0.99,
    weight_decay: float = 0.1,
    not_decayed: Sequence[str] | None = None,
) -> Optimizer:
    """Lion (Chen et al., 2023, algorithm 2): sign(b1 m + (1 - b1) g), with decoupled decay.

    It keeps one average and no squares. Every number moves by the rate, so rates are 3 to 10 times
    smaller than AdamW's, and decays as much larger (section 5).

    Args:
      learning_rate: a number or a schedule.
      b1: the weight of the average in an update.
      b2: the decay of the average of gradients.
      weight_decay: the decay of a parameter in a step at learning rate 1.
      not_decayed: names of parameters without decay, as in `optimizers.adamw`.
    """
    check_rate("weight_decay", weight_decay)
    mask = functools.partial(decay_mask, not_decayed=not_decayed)
    parts = (
        optax.scale_by_lion(b1=b1, b2=b2),
        optax.add_decayed_weights(weight_decay, mask),
        optax.scale_by_learning_rate(learning_rate),
    )
    return with_rate(optax.chain(*parts), learning_rate)

"""AdamW whose rate is relative to the size of each tensor."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import optax

from t5x_like.core.calls import remember_call
from t5x_like.training.optimization.optimizers import Optimizer, with_rate
from t5x_like.training.optimization.schedules import Schedule, check_rate
from t5x_like.training.optimization.weight_decay import decay_mask


@remember_call
def scaled_adamw(
    learning_rate: float | Schedule,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    least_scale: float = 1e-3,
    weight_decay: float = 0.0,
    not_decayed: Sequence[str] | None = None,
) -> Optimizer:
    """AdamW whose updates are multiplied by max(RMS(parameter), `least_scale`), as Adafactor's are.

    T5 1.1, whose tensors differ much in scale, diverges with plain AdamW at rates at which this one
    trains (nanoT5, Nawrot, 2023). The scale is that of each layer's tensor; it does not multiply
    the decay.

    Args:
      learning_rate: a number or a schedule.
      b1: the decay of the average of gradients.
      b2: the decay of the average of their squares.
      eps: a number that is added to the root of the corrected second moment.
      least_scale: the least scale of a tensor.
      weight_decay: the decay of a parameter in a step at learning rate 1.
      not_decayed: names of parameters without decay, as in `optimizers.adamw`.
    """
    check_rate("weight_decay", weight_decay)
    mask = functools.partial(decay_mask, not_decayed=not_decayed)
    parts = (
        optax.scale_by_adam(b1=b1, b2=b2, eps=eps),
        optax.scale_by_param_block_rms(least_scale),
        optax.add_decayed_weights(weight_decay, mask),
        optax.scale_by_learning_rate(learning_rate),
    )
    return with_rate(optax.chain(*parts), learning_rate)

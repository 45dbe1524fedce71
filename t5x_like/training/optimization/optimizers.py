"""The optimizers of the papers: Adafactor as T5X configures it, three kinds of Adam, and LAMB."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from t5x_like.core.calls import remember_call
from t5x_like.training.optimization.moments import scale_by_correction, scale_by_moments
from t5x_like.training.optimization.schedules import Schedule, check_rate
from t5x_like.training.optimization.weight_decay import decay_mask


class Optimizer(NamedTuple):
    """An optax gradient transformation with its learning rate, for the log.

    `build` takes any optax transformation; only those with `learning_rate` have it logged, and only
    those with `made_by` (`calls.remember_call`) can be written to a run's configuration.
    """

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]
    learning_rate: Schedule
    made_by: functools.partial | None = None


@remember_call
def adafactor(
    learning_rate: float | Schedule,
    *,
    decay_rate: float = 0.8,
    step_offset: int = 0,
    clipping_threshold: float | None = 1.0,
    multiply_by_parameter_scale: bool = True,
    min_dim_size_to_factor: int = 128,
    momentum: float | None = None,
) -> Optimizer:
    """Adafactor (Shazeer & Stern, 2018, algorithms 4 and 5) as T5X runs it: no momentum.

    Args:
      learning_rate: the rate, relative to the parameter's scale unless that is switched off.
      decay_rate: second moments decay by 1 - (t + 1 - step_offset) ** -decay_rate.
      step_offset: the first step of fine-tuning, at which the moments start again.
      clipping_threshold: the limit on the root mean square of each tensor's update.
      multiply_by_parameter_scale: updates are relative to max(RMS(parameter), 1e-3).
      min_dim_size_to_factor: smaller matrices keep the full second moment.
      momentum: the decay of an average of updates; None for no average.
    """
    return with_rate(
        optax.adafactor(
            learning_rate,
            min_dim_size_to_factor=min_dim_size_to_factor,
            decay_rate=decay_rate,
            decay_offset=step_offset,
            multiply_by_parameter_scale=multiply_by_parameter_scale,
            clipping_threshold=clipping_threshold,
            momentum=momentum,
        ),
        learning_rate,
    )


Moments = Callable[[float, float, float], Sequence[optax.GradientTransformation]]
"""A function from the decays of both averages and eps to the parts that make an update."""


def _adam(
    *, eps: float, trust_ratio: bool = False
) -> Callable[[Moments], Callable[..., Optimizer]]:
    """A decorator that makes an optimizer of a function and keeps its name and docstring.

    The function takes `b1`, `b2` and `eps`; the optimizer takes the arguments of `make`.
    """
    usual_eps = eps

    def decorated(moments: Moments) -> Callable[..., Optimizer]:
        def make(
            learning_rate: float | Schedule,
            *,
            b1: float = 0.9,
            b2: float = 0.999,
            eps: float = usual_eps,
            weight_decay: float = 0.01,
            not_decayed: Sequence[str] | None = None,
        ) -> Optimizer:
            check_rate("weight_decay", weight_decay)
            mask = functools.partial(decay_mask, not_decayed=not_decayed)
            parts = [*moments(b1, b2, eps), optax.add_decayed_weights(weight_decay, mask)]
            if trust_ratio:
                parts.append(optax.masked(optax.scale_by_trust_ratio(), mask))
            parts.append(optax.scale_by_learning_rate(learning_rate))
            return with_rate(optax.chain(*parts), learning_rate)

        for name in ("__name__", "__qualname__", "__doc__"):
            setattr(make, name, getattr(moments, name))
        return remember_call(make)

    return decorated


@_adam(eps=1e-8)
def adamw(b1: float, b2: float, eps: float) -> Sequence[optax.GradientTransformation]:
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2019), both moments bias-corrected.

    Args:
      learning_rate: a number or a schedule; multiplies the decay too, here and in all others below.
      b1: the decay of the average of gradients, 0.9 by default.
      b2: the decay of the average of their squares, 0.999 by default.
      eps: a number that is added to the root of the second moment.
      weight_decay: the decay of a parameter in a step at learning rate 1, 0.01 by default.
      not_decayed: names (the last part of a path) of parameters without decay; None, the default,
        for those that say so themselves (`weight_decay.decay_mask`).
    """
    return (optax.scale_by_adam(b1=b1, b2=b2, eps=eps),)


@_adam(eps=1e-6)
def adam_uncorrected(b1: float, b2: float, eps: float) -> Sequence[optax.GradientTransformation]:
    """AdamW without bias correction: the AdamWeightDecay of BERT, ELECTRA and XLNet.

    m / (sqrt(v) + eps) + weight_decay * parameter, times the learning rate. Both averages start at
    zero and are used without correction, so that the first steps are larger than Adam's
    (`scale_by_moments`). BERT and ELECTRA clip the gradient to norm 1 on each device before they
    average; `step.build` clips the average. Arguments are those of `adamw`.
    """
    return (scale_by_moments(b1, b2, eps),)


@_adam(eps=1e-8)
def adam_epsilon_hat(b1: float, b2: float, eps: float) -> Sequence[optax.GradientTransformation]:
    """AdamW whose bias correction is part of the step size: fairseq's, TensorFlow's and GPT's Adam.

    Kingma & Ba (2015), end of section 2: eps is added to the root of the uncorrected second
    moment, so that in step t it weighs 1 / sqrt(1 - b2^t) times as much as in `adamw`. RoBERTa,
    BART and SpanBERT decay all parameters with it: `not_decayed` = (). Arguments are those of
    `adamw`.
    """
    return scale_by_moments(b1, b2, eps), scale_by_correction(b1, b2)


@_adam(eps=1e-6, trust_ratio=True)
def lamb(b1: float, b2: float, eps: float) -> Sequence[optax.GradientTransformation]:
    """LAMB (You et al., 2020) as ALBERT used it: without bias correction, unlike `optax.lamb`.

    The update of `adam_uncorrected`, decay included, times |parameter| / |update|, or 1 where a
    norm is 0. A parameter without decay is not scaled either. Each norm is that of one variable in
    ALBERT's code: of one layer, and of query, key and value apart. Arguments are those of `adamw`.
    """
    return (scale_by_moments(b1, b2, eps),)


def with_rate(tx: optax.GradientTransformation, learning_rate: float | Schedule) -> Optimizer:
    """`tx`, which has this learning rate, as an optimizer that tells it.

    Raises:
      ValueError: it is neither a schedule nor a number of at least 0.
    """
    if callable(learning_rate):
        return Optimizer(tx.init, tx.update, learning_rate)
    check_rate("learning_rate", learning_rate)
    return Optimizer(tx.init, tx.update, lambda _: jnp.float32(learning_rate))

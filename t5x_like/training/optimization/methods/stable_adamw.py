"""StableAdamW: Adam whose rate falls, tensor by tensor, where gradients outgrow their average."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from t5x_like.core.calls import remember_call
from t5x_like.training.optimization.optimizers import Optimizer, with_rate
from t5x_like.training.optimization.schedules import Schedule, check_rate
from t5x_like.training.optimization.weight_decay import decay_mask


class StableMoments(NamedTuple):
    """How many gradients were averaged, their average, and that of their squares."""

    count: jax.Array  # type: ignore[assignment]  # the name that it has in checkpoints
    mu: Any
    nu: Any


@remember_call
def stable_adamw(
    learning_rate: float | Schedule,
    *,
    peak: float | None = None,
    b1: float = 0.9,
    b2: float = 0.98,
    eps: float = 1e-6,
    weight_decay: float = 1e-5,
    not_decayed: Sequence[str] | None = None,
) -> Optimizer:
    """StableAdamW (Wortsman et al., 2023) as ModernBERT was trained with it.

    Each tensor has the rate lr / max(1, r), where r is the root mean square of g / max(sqrt(v),
    eps) and v has the gradient g already. So one gradient that is far above the average moves a
    tensor little, and the gradient needs no clipping. The decays of both averages are those that
    correct them: beta (1 - beta^(t - 1)) / (1 - beta^t) in step t.

    A parameter loses `weight_decay` times (its tensor's rate / `peak`) of itself in a step: a decay
    that does not depend on the rate, which is why it is so small.

    Args:
      learning_rate: a number or a schedule.
      peak: the rate at which the decay is `weight_decay`; None for `learning_rate`, a number.
      b1: the decay of the average of gradients.
      b2: the decay of the average of their squares.
      eps: a number that is added to the root of the second moment, and the least of it in r.
      weight_decay: the decay of a parameter in a step at the peak.
      not_decayed: names of parameters without decay, as in `optimizers.adamw`.

    Raises:
      ValueError: a rate is below 0, or the learning rate is a schedule and `peak` is None.
    """
    check_rate("weight_decay", weight_decay)
    if peak is None:
        if callable(learning_rate):
            raise ValueError(
                "stable_adamw: with a schedule it needs `peak` (PEAK_LEARNING_RATE), at which the "
                "decay is weight_decay"
            )
        peak = learning_rate
    check_rate("peak", peak)
    if not isinstance(peak, jax.Array) and peak == 0:
        raise ValueError("stable_adamw: `peak` must be above 0")
    mask = functools.partial(decay_mask, not_decayed=not_decayed)
    parts = scale_by_stable_moments(b1, b2, eps, decay=weight_decay / peak, mask=mask)
    return with_rate(optax.chain(parts, optax.scale_by_learning_rate(learning_rate)), learning_rate)


def scale_by_stable_moments(
    b1: float, b2: float, eps: float, *, decay: Any, mask: Callable[[Any], Any]
) -> optax.GradientTransformation:
    """(m / (sqrt(v) + eps) + decay * parameter) / max(1, r), as `stable_adamw` says.

    Args:
      b1: the decay of m.
      b2: the decay of v.
      eps: as there.
      decay: the share of a parameter where `mask` of the parameters is true.
      mask: a function from parameters to a tree of bool.
    """

    def init(params: Any) -> StableMoments:
        zeros = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        return StableMoments(jnp.zeros((), jnp.int32), *zeros)

    def update(grads: Any, state: StableMoments, params: Any = None) -> tuple[Any, StableMoments]:
        count = optax.safe_increment(state.count)
        new_1, new_2 = (_share_of_new(beta, count) for beta in (b1, b2))
        mu = jax.tree.map(lambda m, g: m + new_1 * (g - m), state.mu, grads)
        nu = jax.tree.map(lambda v, g: v + new_2 * (g * g - v), state.nu, grads)

        def one(g: jax.Array, m: jax.Array, v: jax.Array, p: jax.Array, decayed: bool) -> jax.Array:
            r = jnp.sqrt(jnp.mean(g * g / jnp.maximum(v, eps**2)))
            step = m / (jnp.sqrt(v) + eps)
            return (step + decay * p if decayed else step) / jnp.maximum(1.0, r)

        updates = jax.tree.map(one, grads, mu, nu, params, mask(params))
        return updates, StableMoments(count, mu, nu)

    return optax.GradientTransformation(init, update)


def _share_of_new(beta: float, count: jax.Array) -> jax.Array:
    """(1 - beta) / (1 - beta^t): 1 in the first step, so that averages begin with a gradient."""
    if beta == 0:
        return jnp.float32(1)
    return (1 - beta) / -jnp.expm1(count.astype(jnp.float32) * math.log(beta))

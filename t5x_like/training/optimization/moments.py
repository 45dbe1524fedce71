"""Adam's two moments without correction for their start at zero: BERT's, fairseq's and LAMB's."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class Moments(NamedTuple):
    """Moving averages of gradients and of their squares; each has the tree of the parameters."""

    mu: Any
    nu: Any


def scale_by_moments(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """From gradients to mu / (sqrt(nu) + eps), the averages as they are: Adam, not corrected.

    `optax.scale_by_adam` divides by 1 - b1^t and 1 - b2^t first. Without that, updates are
    (1 - b1^t) / sqrt(1 - b2^t) of Adam's: of b1 = 0.9 and b2 = 0.999, 3.2 times as large at the
    first step, 6.6 times at most, and alike after some thousands.
    """

    def init(params: Any) -> Moments:
        return Moments(*(jax.tree.map(jnp.zeros_like, params) for _ in Moments._fields))

    def update(grads: Any, state: Moments, params: Any = None) -> tuple[Any, Moments]:
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu), Moments(mu, nu)

    return optax.GradientTransformation(init, update)


def scale_by_correction(b1: float, b2: float) -> optax.GradientTransformation:
    """Times sqrt(1 - b2^t) / (1 - b1^t) at step t = 1, 2, ...: the correction, but of eps."""

    def factor(count: jax.Array) -> jax.Array:
        t = jnp.asarray(count, jnp.float32) + 1
        return jnp.sqrt(1 - b2**t) / (1 - b1**t)

    return optax.scale_by_schedule(factor)

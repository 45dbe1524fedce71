"""Adam's two moments without correction for their start at zero, as in BERT, fairseq and LAMB."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class Moments(NamedTuple):
    """Moving averages of gradients and of their squares; each has the tree of the parameters."""

    mu: Any
    nu: Any


class Corrections(NamedTuple):
    """How many gradients the moments have averaged: another number than the steps of a schedule."""

    count: jax.Array  # type: ignore[assignment]  # the name that it has in checkpoints


def scale_by_moments(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """Adam's update without bias correction: mu / (sqrt(nu) + eps).

    `optax.scale_by_adam` first divides mu by 1 - b1^t and nu by 1 - b2^t. Without that, updates are
    (1 - b1^t) / sqrt(1 - b2^t) times Adam's. For b1 = 0.9 and b2 = 0.999 this factor is 3.2 at the
    first step and 6.6 at most; after some thousand steps it is about 1.
    """

    def init(params: Any) -> Moments:
        return Moments(*(jax.tree.map(jnp.zeros_like, params) for _ in Moments._fields))

    def update(grads: Any, state: Moments, params: Any = None) -> tuple[Any, Moments]:
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu), Moments(mu, nu)

    return optax.GradientTransformation(init, update)


def scale_by_correction(b1: float, b2: float) -> optax.GradientTransformation:
    """A factor sqrt(1 - b2^t) / (1 - b1^t) at step t = 1, 2, ...: bias correction but for eps."""

    def factor(count: jax.Array) -> jax.Array:
        t = jnp.asarray(count, jnp.float32) + 1
        return jnp.sqrt(1 - b2**t) / (1 - b1**t)

    def update(grads: Any, state: Corrections, params: Any = None) -> tuple[Any, Corrections]:
        del params
        updates = jax.tree.map(lambda g: factor(state.count).astype(g.dtype) * g, grads)
        return updates, Corrections(optax.safe_increment(state.count))

    return optax.GradientTransformation(lambda _: Corrections(jnp.zeros((), jnp.int32)), update)

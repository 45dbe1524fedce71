"""Activation functions under the names that configurations use."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

_Activation = Callable[[jax.Array], jax.Array]


def _keeping_its_input(function: _Activation) -> _Activation:
    """`function`, elementwise; its slope is computed again rather than stored."""
    recomputed = jax.custom_vjp(function)

    def backward(x: jax.Array, g: jax.Array) -> tuple[jax.Array]:
        return jax.vjp(function, x)[1](g)

    recomputed.defvjp(lambda x: (function(x), x), backward)

    @functools.wraps(function)
    def call(x: jax.Array) -> jax.Array:
        return recomputed(x)

    return call


@_keeping_its_input
def gelu(x: jax.Array) -> jax.Array:
    """x * P(Z < x) for a standard normal Z, exactly (Hendrycks and Gimpel, 2016)."""
    # 1 + erf loses values far below 1: not in 16 bits.
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return (0.5 * wide * (1.0 + jax.lax.erf(wide * np.sqrt(0.5).astype(wide.dtype)))).astype(
        x.dtype
    )


@_keeping_its_input
def gelu_tanh(x: jax.Array) -> jax.Array:
    """The tanh form of `gelu`, at most 4.8e-4 away (BERT's and T5's original code)."""
    return jax.nn.gelu(x, approximate=True)


def relu(x: jax.Array) -> jax.Array:
    """max(x, 0)."""
    return jax.nn.relu(x)


def silu(x: jax.Array) -> jax.Array:
    """x * sigmoid(x)."""
    return jax.nn.silu(x)


def tanh(x: jax.Array) -> jax.Array:
    """The hyperbolic tangent."""
    return jnp.tanh(x)

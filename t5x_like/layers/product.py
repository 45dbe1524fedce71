"""The product of activations with a weight matrix, with a backward pass that transposes little."""

from __future__ import annotations

import jax
import jax.numpy as jnp


@jax.custom_vjp
def product(x: jax.Array, w: jax.Array) -> jax.Array:
    """x[..., in] @ w[in, out].

    The gradient of `w` contracts the leading dimensions of both operands, for which XLA on CPUs
    copies the first one transposed. JAX would put the output's gradient first; here it is the
    narrower of the two (measured on a small T5: a quarter of the step's processor time).
    """
    return x @ w


def _forward(x: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return x @ w, (x, w)


def _backward(saved: tuple[jax.Array, jax.Array], g: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, w = saved
    leading = tuple(range(x.ndim - 1))
    if w.shape[0] <= w.shape[1]:
        dw = jnp.tensordot(x, g, (leading, leading))
    else:
        dw = jnp.tensordot(g, x, (leading, leading)).T
    return g @ w.T, dw


product.defvjp(_forward, _backward)

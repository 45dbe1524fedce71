"""A vector that is added to all vectors of an array, and the gradient of this vector.

Suffixes: D the last dimension.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from t5x_like.core.partitioning import active_layout

_ROWS = 8
"""Of ones: fewer, and XLA would turn the product back into a reduction."""


@jax.custom_vjp
def plus_vector(x: jax.Array, vector_D: jax.Array) -> jax.Array:
    """x [..., D] + vector, in the dtype of x."""
    return x + vector_D.astype(x.dtype)


def _forward(x: jax.Array, vector_D: jax.Array) -> tuple[jax.Array, jax.Array]:
    return plus_vector(x, vector_D), vector_D


def _backward(vector_D: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
    return g, sum_of_vectors(g).astype(vector_D.dtype)


plus_vector.defvjp(_forward, _backward)


def sum_of_vectors(x: jax.Array) -> jax.Array:
    """The sum over all dimensions but the last, [D], in float32 if it is taken on a TPU.

    There, the matrix unit adds vectors, which it rounds to 16 bits as in any product: bfloat16 ones
    in a twentieth of the time (modelled) that a reduction takes.
    """
    layout, leading = active_layout(), tuple(range(x.ndim - 1))
    if layout is None or layout.platform != "tpu" or not leading:
        return x.sum(axis=leading)
    ones = jnp.ones((_ROWS, *x.shape[:-1]), x.dtype)
    over = (tuple(d + 1 for d in leading), leading)
    return jax.lax.dot_general(ones, x, (over, ((), ())), preferred_element_type=jnp.float32)[0]

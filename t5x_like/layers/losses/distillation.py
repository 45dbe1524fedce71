"""Distances of a student from its teacher: of the logits and the states at each position.

Suffixes: B batch, L length, D d_model, V vocabulary.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

_TINY = 1e-12


def kl_divergences(
    teacher_BLV: jax.Array, student_BLV: jax.Array, *, temperature: float
) -> jax.Array:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)), float32 [B, L].

    The factor keeps the scale of the gradient at any temperature T (Hinton et al., 2015).
    """
    teacher_BLV = jax.nn.log_softmax(teacher_BLV.astype(jnp.float32) / temperature)
    student_BLV = jax.nn.log_softmax(student_BLV.astype(jnp.float32) / temperature)
    return temperature**2 * (jnp.exp(teacher_BLV) * (teacher_BLV - student_BLV)).sum(axis=-1)


def cosine_distances(x_BLD: jax.Array, y_BLD: jax.Array) -> jax.Array:
    """1 - cos(x, y), float32 [B, L]: 1 where either is 0."""
    x_BLD, y_BLD = x_BLD.astype(jnp.float32), y_BLD.astype(jnp.float32)
    squares = jnp.square(x_BLD).sum(axis=-1) + _TINY, jnp.square(y_BLD).sum(axis=-1) + _TINY
    return 1.0 - (x_BLD * y_BLD).sum(axis=-1) * jax.lax.rsqrt(squares[0] * squares[1])

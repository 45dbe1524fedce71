"""The product of activations with a weight matrix, with a backward pass that transposes little."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(x: jax.Array, w: jax.Array, kept: str | None = None) -> jax.Array:
    """x[..., in] @ w[in, out].

    The gradient of `w` contracts the leading dimensions of both operands, for which XLA on CPUs
    copies the first one transposed. JAX would put the output's gradient first; here it is the
    narrower of the two (measured on a small T5: a quarter of the step's processor time).

    `kept` is the name of `x` for rematerialisation. Here it names what the backward pass reads
    alone: where `x` is made, JAX would add a pass that rounds it.
    """
    return x @ w


def _forward(
    x: jax.Array, w: jax.Array, kept: str | None
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return x @ w, (x if kept is None else checkpoint_name(x, kept), w)


def _backward(
    kept: str | None, saved: tuple[jax.Array, jax.Array], g: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, w = saved
    leading = tuple(range(x.ndim - 1))
    if w.shape[0] <= w.shape[1]:
        dw = jnp.tensordot(x, g, (leading, leading))
    else:
        dw = jnp.tensordot(g, x, (leading, leading)).T
    return g @ w.T, dw


product.defvjp(_forward, _backward)

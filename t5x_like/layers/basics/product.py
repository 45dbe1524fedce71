"""The product of activations with a weight matrix, with a backward pass that transposes little."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from t5x_like.core.partitioning import active_device


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def product(x: jax.Array, w: jax.Array, kept: str | None = None, narrow: bool = False) -> jax.Array:
    """x[..., in] @ w[in, out].

    The gradient of `w` contracts the leading dimensions of both operands, for which XLA on CPUs
    copies the first one transposed. JAX would put the output's gradient first; here it is the
    narrower of the two (measured on a small T5: a quarter of the step's processor time).

    `kept` is the name of `x` for rematerialisation. Here it names what the backward pass reads
    alone: where `x` is made, JAX would add a pass that rounds it. `narrow` says how the gradient of
    `w` is made (`narrowed`).
    """
    return x @ w


def narrowed(a: jax.Array, b: jax.Array, *, narrow: bool) -> tuple[jax.Array, jax.Array]:
    """The operands of the gradient of a matrix, in 16 bits on TPUs if that is asked for.

    TPUs round operands to bfloat16 in any case, and sum their products in float32. So the gradient
    loses what its own rounding takes, and devices hold and send half of the bytes.
    """
    if narrow and active_device().platform == "tpu":
        return a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    return a, b


def _forward(
    x: jax.Array, w: jax.Array, kept: str | None, narrow: bool
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return x @ w, (x if kept is None else checkpoint_name(x, kept), w)


def _backward(
    kept: str | None, narrow: bool, saved: tuple[jax.Array, jax.Array], g: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, w = saved
    leading = tuple(range(x.ndim - 1))
    a, b = narrowed(x, g, narrow=narrow)
    if w.shape[0] <= w.shape[1]:
        dw = jnp.tensordot(a, b, (leading, leading))
    else:
        dw = jnp.tensordot(b, a, (leading, leading)).T
    return g @ w.T, dw.astype(w.dtype)


product.defvjp(_forward, _backward)

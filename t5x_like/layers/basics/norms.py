"""Norms over the last dimension, each with its own backward pass that stores little.

The backward pass keeps the unchanged input and each vector's statistics; automatic derivatives
would keep every intermediate array. Statistics are float32, or float64 for float64 input.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array | None, epsilon: float) -> jax.Array:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, float32 (Ba et al., 2016).

    x is [..., D], scale and bias are [D]; there may be no bias.
    """
    return _layer_norm_forward(x, scale, bias, epsilon)[0]


def _layer_norm_forward(
    x: jax.Array, scale: jax.Array, bias: jax.Array | None, epsilon: float
) -> tuple[jax.Array, tuple[jax.Array | None, ...]]:
    wide = x.astype(_wide(x.dtype))
    mean = wide.mean(axis=-1, keepdims=True)
    centred = wide - mean
    if x.dtype == wide.dtype:
        variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    else:
        # Both sums in one pass: what cancels here is less than 16 bits have rounded.
        squares = jnp.square(wide).mean(axis=-1, keepdims=True)
        variance = jnp.maximum(squares - jnp.square(mean), 0.0)
    inverse = jax.lax.rsqrt(variance + epsilon)
    mean, inverse = (checkpoint_name(statistic, "statistics") for statistic in (mean, inverse))
    normed = centred * inverse * scale
    return normed if bias is None else normed + bias, (x, scale, bias, mean, inverse)


def _layer_norm_backward(
    epsilon: float, saved: tuple[Any, ...], g: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    x, scale, bias, mean, inverse = saved
    normed = (x.astype(mean.dtype) - mean) * inverse
    scaled = g * scale
    shift = scaled.mean(axis=-1, keepdims=True)
    along = (scaled * normed).mean(axis=-1, keepdims=True)
    dx = inverse * (scaled - shift - normed * along)
    dbias = None if bias is None else _to_vector(g, bias)
    return dx.astype(x.dtype), _to_vector(g * normed, scale), dbias


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x: jax.Array, scale: jax.Array, epsilon: float) -> jax.Array:
    """x / sqrt(mean(x^2) + epsilon) * scale, float32 (Zhang and Sennrich, 2019).

    x is [..., D], scale is [D].
    """
    return _rms_norm_forward(x, scale, epsilon)[0]


def _rms_norm_forward(
    x: jax.Array, scale: jax.Array, epsilon: float
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    wide = x.astype(_wide(x.dtype))
    inverse = jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + epsilon)
    return wide * inverse * scale, (x, scale, checkpoint_name(inverse, "statistics"))


def _rms_norm_backward(
    epsilon: float, saved: tuple[jax.Array, ...], g: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, scale, inverse = saved
    normed = x.astype(inverse.dtype) * inverse
    scaled = g * scale
    along = (scaled * normed).mean(axis=-1, keepdims=True)
    dx = inverse * (scaled - normed * along)
    return dx.astype(x.dtype), _to_vector(g * normed, scale)


rms_norm.defvjp(_rms_norm_forward, _rms_norm_backward)


def _wide(dtype: DTypeLike) -> DTypeLike:
    return jnp.promote_types(dtype, jnp.float32)


def _to_vector(x: jax.Array, like: jax.Array) -> jax.Array:
    """The gradient of a vector that was combined with all last dimensions of x."""
    return x.sum(axis=tuple(range(x.ndim - 1))).astype(like.dtype)

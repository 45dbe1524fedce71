"""Gradients of a batch, whole or in microbatches, with the same result."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.partitioning import constrain
from t5x_like.training.optimization.freezing import merge

if TYPE_CHECKING:
    from t5x_like.core.protocols import Batch, Carry, Metrics


def gradients(
    graphdef: Any,
    params: Any,
    *,
    batch: Batch,
    key: jax.Array,
    carry: Carry,
    microbatches: int,
    frozen: Any = None,
) -> tuple[Any, Metrics, Carry]:
    """Gradients, metrics and the next carry of the whole batch, summed over microbatches.

    The denominators of all loss terms come from the whole batch, so that the parts add up.

    Args:
      graphdef: the model without its parameters.
      params: a plain dict.
      batch: {name: [B, ...]}.
      key: the key of dropout.
      carry: a pytree of [B, ...].
      microbatches: their number M; B / M rows are computed at a time.
      frozen: further parameters, without gradients (`freezing.split`).
    """

    def model(params: Any) -> Any:
        return nnx.merge(graphdef, params if frozen is None else merge(params, frozen))

    weights = model(params).weights(batch)

    def loss(params: Any, batch: Batch, carry: Carry, key: jax.Array) -> tuple[jax.Array, Any]:
        scalar, metrics, carry = model(params).loss(batch, key, carry, weights)
        return scalar, (metrics, carry)

    def part(batch: Batch, carry: Carry, key: jax.Array) -> tuple[tuple[Any, Metrics], Carry]:
        grads, (metrics, carry) = jax.grad(loss, has_aux=True)(params, batch, carry, key)
        return (grads, metrics), carry

    if microbatches == 1:
        (grads, metrics), carry = part(batch, carry, key)
        return grads, metrics, carry

    def accumulate(total: Any, xs: tuple) -> tuple[Any, Carry]:
        result, carry = part(*xs)
        return jax.tree.map(jnp.add, total, result), carry

    split = functools.partial(_to_microbatches, microbatches=microbatches)
    xs = (
        jax.tree.map(split, dict(batch)),
        jax.tree.map(split, carry),
        jax.random.split(key, microbatches),
    )
    first = jax.tree.map(lambda x: x[0], xs)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(part, *first)[0])
    (grads, metrics), carry = jax.lax.scan(accumulate, zeros, xs)
    return grads, metrics, jax.tree.map(_from_microbatches, carry)


def _to_microbatches(x: jax.Array, *, microbatches: int) -> jax.Array:
    """[B, ...] -> [M, B / M, ...], interleaved so that every device keeps its own rows."""
    x = x.reshape(x.shape[0] // microbatches, microbatches, *x.shape[1:]).swapaxes(0, 1)
    return constrain(x, None, "batch", *[None] * (x.ndim - 2))


def _from_microbatches(x: jax.Array) -> jax.Array:
    """The inverse of `_to_microbatches`: row b of the batch is again row b."""
    x = x.swapaxes(0, 1)
    x = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    return constrain(x, "batch", *[None] * (x.ndim - 1))

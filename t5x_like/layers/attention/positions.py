"""Relative position biases in logarithmic buckets (T5, section 2.1).

Suffixes: H heads, L queries, M keys, R distances, U buckets.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.partitioning import constrain
from t5x_like.layers.basics.depth import below
from t5x_like.layers.basics.modules import param


def relative_bucket(
    distance: jax.Array, *, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128
) -> jax.Array:
    """The bucket, int32, of each distance (key position minus query position).

    Half of a direction's buckets hold one distance each. The others grow by a constant factor up to
    `max_distance`, and the last takes all larger ones. `bidirectional` gives half of the buckets to
    keys after the query; otherwise all of those share bucket 0.
    """
    if bidirectional:
        num_buckets //= 2
        first = jnp.where(distance > 0, num_buckets, 0)
        back = jnp.abs(distance)
    else:
        first = jnp.zeros_like(distance)
        back = jnp.maximum(-distance, 0)
    exact = num_buckets // 2
    # max: otherwise the logarithm of 0 is cast to an integer below, which is undefined.
    growth = jnp.log(jnp.maximum(back, exact) / exact) / math.log(max_distance / exact)
    far = exact + (growth * (num_buckets - exact)).astype(jnp.int32)
    bucket = jnp.where(back < exact, back, jnp.minimum(far, num_buckets - 1))
    return (first + bucket).astype(jnp.int32)


class RelativeBias(nnx.Module):
    """One learned number per head and bucket, times `scale`, added to the attention logits."""

    def __init__(
        self,
        num_heads: int,
        *,
        bidirectional: bool,
        rngs: nnx.Rngs,
        num_buckets: int = 32,
        max_distance: int = 128,
        scale: float = 1.0,
    ) -> None:
        init = nnx.initializers.variance_scaling(1.0, "fan_avg", "uniform")
        shape, axes = (num_heads, num_buckets), ("heads", "relpos_buckets")
        self.table = below(param(init, shape, axes=axes, multiplied=False, rngs=rngs))
        self.bidirectional = bidirectional
        self.max_distance = max_distance
        self.scale = scale

    def __call__(self, num_queries: int, num_keys: int, *, first: int = 0) -> jax.Array:
        """Float32 [1, H, L, M], positions counted from 0 for queries, from `first` for keys."""
        bias_HR = self._at(jnp.arange(1 - num_queries, num_keys) + first)
        bias_1HLM = _toeplitz(bias_HR, num_queries, num_keys)[None]
        return constrain(bias_1HLM, None, "heads", "length", None)

    def row(self, position: jax.Array, num_keys: int) -> jax.Array:
        """Float32 [1, H, 1, M]: the bias of the one query at `position`, as decoding needs it."""
        return self._at(jnp.arange(num_keys) - position)[None, :, None, :]

    def _at(self, distance_R: jax.Array) -> jax.Array:
        bucket_R = relative_bucket(
            distance_R,
            bidirectional=self.bidirectional,
            num_buckets=self.table.shape[-1],
            max_distance=self.max_distance,
        )
        return self.scale * self.table[...][:, bucket_R]


def _toeplitz(bias_HR: jax.Array, num_queries: int, num_keys: int) -> jax.Array:
    """out[h, i, j] = bias[h, j - i + L - 1], [H, L, M], by repeating and reshaping only.

    A gather gives the same, but its gradient is a scatter of L * M elements: slow everywhere.
    """
    zero = num_queries - 1  # where distance 0 is
    period = num_queries + num_keys
    row_HP = jnp.concatenate(
        [bias_HR[:, zero:], jnp.zeros_like(bias_HR[:, :1]), bias_HR[:, :zero]], axis=1
    )
    heads = bias_HR.shape[0]
    # A row is one element shorter than the period: each starts one distance earlier than the last.
    flat = jnp.broadcast_to(row_HP[:, None], (heads, num_queries, period)).reshape(heads, -1)
    skewed = flat[:, : num_queries * (period - 1)].reshape(heads, num_queries, period - 1)
    return skewed[:, :, :num_keys]

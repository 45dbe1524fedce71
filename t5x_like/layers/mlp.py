"""Feed-forward layers: one activation, or a product of an activated and a plain projection.

Suffixes: B batch, L length, D d_model, F d_ff.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.basic import Linear, dropout
from t5x_like.partitioning import constrain

_FAN_IN = nnx.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")


class Mlp(nnx.Module):
    """activation(x wi) wo, with dropout before wo (T5, section 2.1: relu)."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        activation: Callable[[jax.Array], jax.Array] = jax.nn.relu,
    ) -> None:
        self.wi = Linear((d_model, d_ff), ("embed", "mlp"), init=_FAN_IN, dtype=dtype, rngs=rngs)
        self.wo = Linear((d_ff, d_model), ("mlp", "embed"), init=_FAN_IN, dtype=dtype, rngs=rngs)
        self.activation = activation

    def __call__(self, x_BLD: jax.Array, *, rate: float, key: jax.Array | None) -> jax.Array:
        h_BLF = self.activation(self.wi(x_BLD))
        return self.wo(_hidden(h_BLF, rate=rate, key=key))


class GatedMlp(nnx.Module):
    """(activation(x wi_0) * x wi_1) wo, as T5 1.1 has it: gelu in its tanh form (GLU Variants)."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        activation: Callable[[jax.Array], jax.Array] = jax.nn.gelu,
    ) -> None:
        self.wi_0 = Linear((d_model, d_ff), ("embed", "mlp"), init=_FAN_IN, dtype=dtype, rngs=rngs)
        self.wi_1 = Linear((d_model, d_ff), ("embed", "mlp"), init=_FAN_IN, dtype=dtype, rngs=rngs)
        self.wo = Linear((d_ff, d_model), ("mlp", "embed"), init=_FAN_IN, dtype=dtype, rngs=rngs)
        self.activation = activation

    def __call__(self, x_BLD: jax.Array, *, rate: float, key: jax.Array | None) -> jax.Array:
        h_BLF = self.activation(self.wi_0(x_BLD)) * self.wi_1(x_BLD)
        return self.wo(_hidden(h_BLF, rate=rate, key=key))


def _hidden(h_BLF: jax.Array, *, rate: float, key: jax.Array | None) -> jax.Array:
    h_BLF = constrain(h_BLF, "batch", "length", "mlp")
    return dropout(h_BLF, key, rate=rate, shared=(1,))

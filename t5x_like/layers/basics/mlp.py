"""Feed-forward layers: one activation, or a product of an activated and a plain projection.

Suffixes: B batch, L length, D d_model, F d_ff.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.typing import DTypeLike

from t5x_like.core.partitioning import constrain
from t5x_like.layers.basics import activations
from t5x_like.layers.basics.dropout import Dropouts, dropout
from t5x_like.layers.basics.modules import Init, Linear

Activation = Callable[[jax.Array], jax.Array]
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
        activation: Activation = activations.relu,
        bias: bool = False,
        inits: tuple[Init, Init] = (_FAN_IN, _FAN_IN),
    ) -> None:
        def dense(shape: tuple[int, int], axes: tuple[str, str], init: Init) -> Linear:
            return Linear(shape, axes, init=init, dtype=dtype, rngs=rngs, bias=bias)

        self.wi = dense((d_model, d_ff), ("embed", "mlp"), inits[0])
        self.wo = dense((d_ff, d_model), ("mlp", "embed"), inits[1])
        self.activation = activation

    def __call__(self, x_BLD: jax.Array, *, dropouts: Dropouts, key: jax.Array | None) -> jax.Array:
        h_BLF = self.activation(checkpoint_name(self.wi(x_BLD), "hidden"))
        return self.wo(_hidden(h_BLF, dropouts=dropouts, key=key))


class GatedMlp(nnx.Module):
    """(activation(x wi_0) * x wi_1) wo, as T5 1.1 has it: gelu in its tanh form (GLU Variants)."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        activation: Activation = activations.gelu_tanh,
        inits: tuple[Init, Init] = (_FAN_IN, _FAN_IN),
    ) -> None:
        shape, axes = (d_model, d_ff), ("embed", "mlp")
        self.wi_0 = Linear(shape, axes, init=inits[0], dtype=dtype, rngs=rngs)
        self.wi_1 = Linear(shape, axes, init=inits[0], dtype=dtype, rngs=rngs)
        self.wo = Linear(shape[::-1], axes[::-1], init=inits[1], dtype=dtype, rngs=rngs)
        self.activation = activation

    def __call__(self, x_BLD: jax.Array, *, dropouts: Dropouts, key: jax.Array | None) -> jax.Array:
        gate_BLF, h_BLF = (checkpoint_name(wi(x_BLD), "hidden") for wi in (self.wi_0, self.wi_1))
        h_BLF = self.activation(gate_BLF) * h_BLF
        return self.wo(_hidden(h_BLF, dropouts=dropouts, key=key))


def _hidden(h_BLF: jax.Array, *, dropouts: Dropouts, key: jax.Array | None) -> jax.Array:
    h_BLF = constrain(h_BLF, "batch", "length", "mlp")
    return dropout(h_BLF, key, rate=dropouts.mlp, shared=(1,) if dropouts.shared else ())

"""What a head reads of a body besides its last states: those of several layers, or their mixture.

Suffixes: N states of layers, B batch, L length, D d_model.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.basics.modules import ONES, ZEROS, param


class ScalarMix(nnx.Module):
    """gamma * sum_n softmax(w)_n * states_n (Peters et al., 2018, equation 1); it starts as a mean.

    The states are the input of the first layer and the output of each.
    """

    def __init__(self, count: int, *, rngs: nnx.Rngs) -> None:
        self.weights = param(ZEROS, (count,), axes=(None,), rngs=rngs)
        self.gamma = param(ONES, (1,), axes=(None,), rngs=rngs)

    def width(self, d_model: int) -> int:
        """The width of what a head reads: D."""
        return d_model

    def __call__(self, states_NBLD: jax.Array) -> jax.Array:
        """[B, L, D] in the dtype of the states; the sum is in float32."""
        shares = jax.nn.softmax(self.weights[...])
        mixed = jnp.einsum("n,nbld->bld", shares, states_NBLD.astype(jnp.float32))
        return (self.gamma[...] * mixed).astype(states_NBLD.dtype)


class Concatenation(nnx.Module):
    """The last `layers` states side by side (Devlin et al., 2019, section 5.3)."""

    def __init__(self, layers: int, *, rngs: nnx.Rngs) -> None:
        del rngs
        self.layers = layers

    def width(self, d_model: int) -> int:
        """The width of what a head reads: `layers` times D."""
        return self.layers * d_model

    def __call__(self, states_NBLD: jax.Array) -> jax.Array:
        """[B, L, layers * D], the last layer last."""
        return jnp.concatenate([*states_NBLD[-self.layers :]], axis=-1)

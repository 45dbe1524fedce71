"""A convolution over neighbouring positions of a row, as one product.

Suffixes: B batch, L length, D d_model.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.basics.modules import Init, Linear


class Convolution(nnx.Module):
    """Each position's own state and those of its neighbours, times a matrix [width * D, D].

    The blocks of the matrix are for the neighbours from left to right.
    """

    def __init__(
        self, d_model: int, *, width: int, init: Init, dtype: DTypeLike, rngs: nnx.Rngs
    ) -> None:
        """Makes the matrix; `width` is odd: as many neighbours on each side."""
        shape, axes = (width * d_model, d_model), ("embed", None)
        self.dense = Linear(shape, axes, init=init, dtype=dtype, rngs=rngs, bias=True)
        self.width = width

    def __call__(self, x_BLD: jax.Array, segments_BL: jax.Array) -> jax.Array:
        """[B, L, D]; neighbours count where `segments_BL` are equal, 0 at padding."""
        side, length = self.width // 2, x_BLD.shape[1]
        x = jnp.pad(x_BLD, ((0, 0), (side, side), (0, 0)))
        numbers = jnp.pad(segments_BL, ((0, 0), (side, side)))

        def neighbour(shift: int) -> jax.Array:
            places = slice(shift, shift + length)
            same_BL = (numbers[:, places] == segments_BL) & (segments_BL > 0)
            return jnp.where(same_BL[..., None], x[:, places], 0)

        return self.dense(jnp.concatenate([*map(neighbour, range(self.width))], axis=-1))

"""Convolutions over neighbouring positions of a row.

Suffixes: B batch, L length, D d_model; M windows, W positions of a window, E width of the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.basics.modules import Init, Linear
from t5x_like.layers.basics.vectors import plus_vector

_GLOROT = nnx.initializers.glorot_uniform()


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


class StridedConvolution(nnx.Module):
    """Windows of `width` positions, each `stride` after the last, times a matrix [W * D, E].

    Nothing is masked: states of padding count where a window holds them.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        width: int,
        stride: int = 1,
        same: bool = False,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        """Makes the matrix, as TensorFlow initialises that of a convolution.

        Args:
          shape: D and E.
          width: W.
          stride: the distance of windows.
          same: whether zeros around the row make as many windows as there are positions, with one
            more after it than before it where the width is even; else no window leaves the row.
          dtype: that of the products.
          rngs: the source of random numbers.
        """

        of_taps = (width, *shape)

        def init(
            key: jax.Array, shape: Sequence[Any], dtype: Any = None, out_sharding: Any = None
        ) -> jax.Array:
            return _GLOROT(key, of_taps, dtype).reshape(shape)

        self.dense = Linear(
            (width * shape[0], shape[1]),
            ("embed", None),
            init=init,
            dtype=dtype,
            rngs=rngs,
            bias=True,
        )
        self.width = width
        self.stride = stride
        self.around = ((width - 1) // 2, width // 2) if same else (0, 0)

    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        """[B, M, E]."""
        dtype = self.dense.dtype
        kernel_WDE = self.dense.kernel[...].reshape(self.width, x_BLD.shape[-1], -1)
        y_BME = jax.lax.conv_general_dilated(
            x_BLD.astype(dtype),
            kernel_WDE.astype(dtype),
            (self.stride,),
            [self.around],
            dimension_numbers=("NWC", "WIO", "NWC"),
        )
        assert self.dense.bias is not None
        return plus_vector(y_BME, self.dense.bias[...])

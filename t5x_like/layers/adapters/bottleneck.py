"""Adapters: small networks after a layer's sublayers (Houlsby et al., 2019, section 2.1)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx

from t5x_like.layers.adapters import places as matrices
from t5x_like.layers.basics.modules import ZEROS, Linear, param

TRAINED = ("down", "down_bias", "up", "up_bias")
"""The names of its parameters."""
_NEAR_ZERO = nnx.initializers.truncated_normal(1e-3)


class Followed(Linear):
    """A matrix that keeps its name, and a network of one narrow layer after it: y + f(y)."""

    def __init__(self, old: Linear, *, width: int, rngs: nnx.Rngs) -> None:
        self.kernel, self.bias, self.dtype = old.kernel, old.bias, old.dtype
        outputs = old.kernel.shape[-1]
        new = functools.partial(param, compute_dtype=old.dtype)

        def make(rngs: nnx.Rngs) -> list[nnx.Param]:
            return [
                new(_NEAR_ZERO, (outputs, width), axes=("embed", None), rngs=rngs),
                new(ZEROS, (width,), axes=(None,), rngs=rngs),
                new(_NEAR_ZERO, (width, outputs), axes=(None, "embed"), rngs=rngs),
                new(ZEROS, (outputs,), axes=(None,), rngs=rngs),
            ]

        self.down, self.down_bias, self.up, self.up_bias = matrices.beside(old, make, rngs)

    def __call__(self, x: jax.Array, *, kept: str | None = None) -> jax.Array:
        """The product and what follows; `kept` as in `Linear`."""
        y = super().__call__(x, kept=kept)
        down, down_bias, up, up_bias = (
            p[...].astype(self.dtype) for p in (self.down, self.down_bias, self.up, self.up_bias)
        )
        hidden = jax.nn.gelu(y.astype(self.dtype) @ down + down_bias, approximate=False)
        return y + (hidden @ up + up_bias).astype(y.dtype)


def adapt(
    model: nnx.Module,
    *,
    rngs: nnx.Rngs,
    width: int = 64,
    places: Sequence[str] = ("out", "wo"),
) -> Any:
    """The model with adapters after its sublayers, before what these add to.

    Args:
      model: the model, which is changed.
      rngs: the source of random numbers.
      width: the units of their hidden layer.
      places: names of matrices, of `places.NAMES`: ("wo",) for those after MLPs alone.

    Raises:
      ValueError: the width is below 1, or there are no such matrices.
    """
    if width < 1:
        raise ValueError(f"the width of adapters is at least 1, not {width}")

    def adapted(path: str, matrix: Linear) -> Linear:
        del path
        return Followed(matrix, width=width, rngs=rngs)

    return matrices.replace(model, places, adapted)

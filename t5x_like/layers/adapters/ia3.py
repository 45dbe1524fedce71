"""(IA)3: keys, values and the hidden units of MLPs are scaled (Liu et al., 2022, section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from t5x_like.layers.adapters import places as matrices
from t5x_like.layers.basics.modules import ONES, Linear, param

TRAINED = ("ia3_scale",)
"""The name of its parameters."""
_OF_INPUTS = "wo"
"""The end of the paths of matrices whose inputs are scaled; of others it is the outputs."""


class Scaled(Linear):
    """A matrix that keeps its name, whose inputs or outputs are multiplied with a vector."""

    def __init__(self, old: Linear, *, of_inputs: bool, rngs: nnx.Rngs) -> None:
        self.kernel, self.bias, self.dtype, self.of_inputs = (
            *(old.kernel, old.bias, old.dtype),
            of_inputs,
        )
        size = old.kernel.shape[-2 if of_inputs else -1]

        def make(rngs: nnx.Rngs) -> list[nnx.Param]:
            return [param(ONES, (size,), axes=(None,), rngs=rngs, compute_dtype=old.dtype)]

        (self.ia3_scale,) = matrices.beside(old, make, rngs)

    def __call__(self, x: jax.Array, *, kept: str | None = None) -> jax.Array:
        """The product; `kept` as in `Linear`."""
        scale = self.ia3_scale[...].astype(self.dtype)
        if self.of_inputs:
            return super().__call__(x.astype(self.dtype) * scale, kept=kept)
        return super().__call__(x, kept=kept) * scale

    def merged(self, params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The parameters of the `Linear` that gives the same products.

        Args:
          params: those of this matrix by name, also of several layers: [..., in, out].
        """
        scale = params["ia3_scale"]
        plain = {name: params[name] for name in ("kernel", "bias") if name in params}
        if self.of_inputs:
            return plain | {"kernel": plain["kernel"] * scale[..., :, None]}
        return plain | {
            "kernel": plain["kernel"] * scale[..., None, :],
            **({"bias": plain["bias"] * scale} if "bias" in plain else {}),
        }


def scales_inputs(path: str) -> bool:
    """Whether the inputs of the matrix at a path are scaled, or its outputs."""
    return path.endswith(_OF_INPUTS)


def adapt(
    model: nnx.Module, *, rngs: nnx.Rngs, places: Sequence[str] = ("key", "value", "wo")
) -> Any:
    """The model with scales of 1 at matrices of its layers.

    Args:
      model: the model, which is changed.
      rngs: the source of random numbers.
      places: names of matrices, of `places.NAMES`.

    Raises:
      ValueError: there are no such matrices.
    """

    def adapted(path: str, matrix: Linear) -> Linear:
        return Scaled(matrix, of_inputs=scales_inputs(path), rngs=rngs)

    return matrices.replace(model, places, adapted)

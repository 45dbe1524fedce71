"""Low-rank changes of matrices: LoRA (Hu et al., 2022), rsLoRA and DoRA (Liu et al., 2024).

Suffixes: I in, O out, R rank.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t5x_like.layers.adapters import places as matrices
from t5x_like.layers.basics.modules import ZEROS, Linear, param
from t5x_like.layers.basics.product import product

TRAINED = ("lora_a", "lora_b", "lora_magnitude")
"""The names of its parameters."""
_UNIFORM = nnx.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
"""From -1 / sqrt(I) to 1 / sqrt(I), as in the paper's code."""


class LowRank(Linear):
    """x W + scale (x A) B: a matrix that keeps its name, and a product of rank R beside it.

    With magnitudes, each column of W + scale A B is divided by its norm, which counts as a constant
    in gradients, and multiplied with that of W plus a number that is learned (DoRA, section 4).
    """

    def __init__(
        self, old: Linear, *, rank: int, scale: float, magnitudes: bool, rngs: nnx.Rngs
    ) -> None:
        self.kernel, self.bias, self.dtype, self.scale = old.kernel, old.bias, old.dtype, scale
        from_axis, to_axis = old.kernel.get_metadata()["axes"]
        *_, inputs, outputs = old.kernel.shape
        new = functools.partial(param, compute_dtype=old.dtype)

        def make(rngs: nnx.Rngs) -> list[nnx.Param]:
            a = new(_UNIFORM, (inputs, rank), axes=(from_axis, None), rngs=rngs)
            b = new(ZEROS, (rank, outputs), axes=(None, to_axis), rngs=rngs)
            magnitude = new(ZEROS, (outputs,), axes=(None,), rngs=rngs)
            return [a, b, *([magnitude] if magnitudes else [])]

        self.lora_a, self.lora_b, *rest = matrices.beside(old, make, rngs)
        self.lora_magnitude = rest[0] if rest else None

    def __call__(self, x: jax.Array, *, kept: str | None = None) -> jax.Array:
        """The product; `kept` as in `Linear`."""
        x = x.astype(self.dtype)
        a, b = (p[...].astype(self.dtype) for p in (self.lora_a, self.lora_b))
        y = product(x, self.kernel[...].astype(self.dtype), kept) + self.scale * (x @ a @ b)
        if self.lora_magnitude is not None:
            whole = self.kernel[...] + self.scale * (self.lora_a[...] @ self.lora_b[...])
            norms = jax.lax.stop_gradient(_norms(whole))
            wanted = _norms(self.kernel[...]) + self.lora_magnitude[...]
            y = y * (wanted / norms).astype(self.dtype)
        return y if self.bias is None else y + self.bias[...].astype(self.dtype)

    def merged(self, params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The parameters of the `Linear` that gives the same products.

        Args:
          params: those of this matrix by name, also of several layers: [..., I, O].
        """
        kernel = params["kernel"] + self.scale * (params["lora_a"] @ params["lora_b"])
        if "lora_magnitude" in params:
            wanted = _norms(params["kernel"]) + params["lora_magnitude"]
            kernel = kernel * (wanted / _norms(kernel))[..., None, :]
        bias = {"bias": params["bias"]} if "bias" in params else {}
        return {"kernel": np.asarray(kernel), **bias}


def _norms(kernel: Any) -> jax.Array:
    """Of each column: [..., I, O] to [..., O]."""
    return jnp.linalg.norm(kernel, axis=-2)


def adapt(
    model: nnx.Module,
    *,
    rngs: nnx.Rngs,
    rank: int = 8,
    alpha: float = 16.0,
    places: Sequence[str] = ("query", "value"),
    rank_stabilised: bool = False,
    magnitudes: bool = False,
) -> Any:
    """The model with low-rank changes of its matrices, which change nothing at first.

    Args:
      model: the model, which is changed.
      rngs: the source of random numbers.
      rank: that of the changes.
      alpha: their scale is alpha / rank.
      places: names of matrices, of `places.NAMES`.
      rank_stabilised: whether their scale is alpha / sqrt(rank) (Kalajdzievski, 2023).
      magnitudes: whether the norm of each column is learned apart (DoRA).

    Raises:
      ValueError: the rank is below 1, or there are no such matrices.
    """
    if rank < 1:
        raise ValueError(f"the rank of LoRA is at least 1, not {rank}")
    scale = alpha / (math.sqrt(rank) if rank_stabilised else rank)

    def adapted(name: str, matrix: Linear) -> Linear:
        del name
        return LowRank(matrix, rank=rank, scale=scale, magnitudes=magnitudes, rngs=rngs)

    return matrices.replace(model, places, adapted)

"""Low-rank changes of matrices: LoRA (Hu et al., 2022), rsLoRA and DoRA (Liu et al., 2024).

Suffixes: I in, O out, R rank.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t5x_like.layers.adapters import places as matrices
from t5x_like.layers.basics.dropout import DropsInputs, dropout
from t5x_like.layers.basics.modules import ZEROS, Linear, param
from t5x_like.layers.basics.product import product

TRAINED = ("lora_a", "lora_b", "lora_magnitude", "lora_scale")
"""The names of its parameters. Scales have no gradient: they are saved with the others."""
_UNIFORM = nnx.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
"""From -1 / sqrt(I) to 1 / sqrt(I), as in the paper's code."""

OfLayers = float | Sequence[float]
"""A number for all layers of a stack, or one for each."""
OfMatrices = OfLayers | Mapping[str, OfLayers]
"""One for all matrices, or {regular expression: one}, of which the last counts that matches."""


class LowRank(Linear, DropsInputs):
    """x W + scale (x A) B: a matrix that keeps its name, and a product of rank R beside it.

    In training, dropout may apply to what A reads (LoRA, table 9). With magnitudes, it then applies
    to all that is added to x W, as in the published code of DoRA.

    With magnitudes, each column of W + scale A B is divided by its norm, which counts as a constant
    in gradients, and multiplied with that of W plus a number that is learned (DoRA, section 4).

    Where layers of a stack have several ranks, A and B are as large as the largest. In other layers
    the last columns of A and rows of B are 0, so that they have no gradient and stay 0.

    Attributes:
      ranks: the ranks, one for each matrix that the kernel holds.
    """

    def __init__(
        self,
        old: Linear,
        *,
        ranks: np.ndarray,
        scales: np.ndarray,
        magnitudes: bool,
        input_dropout: float = 0.0,
        rngs: nnx.Rngs,
    ) -> None:
        """Stands for a matrix.

        Args:
          old: the matrix, [..., I, O].
          ranks: int [...], at least 0.
          scales: float [...].
          magnitudes: whether the norm of each column is learned apart.
          input_dropout: the rate of dropout of what A reads.
          rngs: the source of random numbers.
        """
        self.kernel, self.bias, self.dtype = old.kernel, old.bias, old.dtype
        self.input_dropout = input_dropout
        from_axis, to_axis = old.kernel.get_metadata()["axes"]
        *_, inputs, outputs = old.kernel.shape
        rank = int(ranks.max())
        new = functools.partial(param, compute_dtype=old.dtype)

        def make(rngs: nnx.Rngs) -> list[nnx.Param]:
            a = new(_UNIFORM, (inputs, rank), axes=(from_axis, None), rngs=rngs)
            b = new(ZEROS, (rank, outputs), axes=(None, to_axis), rngs=rngs)
            magnitude = new(ZEROS, (outputs,), axes=(None,), rngs=rngs)
            return [a, b, *([magnitude] if magnitudes else [])]

        self.lora_a, self.lora_b, *rest = matrices.beside(old, make, rngs)
        self.lora_magnitude = rest[0] if rest else None
        self.ranks = tuple(map(int, ranks.ravel()))
        if (ranks != rank).any():
            self.lora_a.set_value(self.lora_a[...] * (np.arange(rank) < ranks[..., None, None]))
        self.scale = float(scales.flat[0])
        values = jnp.asarray(scales, jnp.float32)
        differ = (scales != self.scale).any()
        self.lora_scale = nnx.Param(values, axes=(), compute_dtype="float32") if differ else None

    def __call__(self, x: jax.Array, *, kept: str | None = None) -> jax.Array:
        """The product; `kept` as in `Linear`."""
        x = x.astype(self.dtype)
        scale: Any = self.scale
        if self.lora_scale is not None:
            scale = jax.lax.stop_gradient(self.lora_scale[...]).astype(self.dtype)
        a, b = (p[...].astype(self.dtype) for p in (self.lora_a, self.lora_b))
        kernel = self.kernel[...].astype(self.dtype)
        read = dropout(x, self.dropout_key, rate=self.input_dropout)
        y, change = product(x, kernel, kept), scale * (read @ a @ b)
        if self.lora_magnitude is None:
            y = y + change
        else:
            whole = self.kernel[...] + scale * (self.lora_a[...] @ self.lora_b[...])
            norms = jax.lax.stop_gradient(column_norms(whole))
            wanted = column_norms(self.kernel[...]) + self.lora_magnitude[...]
            ratio = (wanted / norms).astype(self.dtype)
            if read is x:
                y = (y + change) * ratio
            else:
                y = y + (ratio - 1) * (read @ kernel) + ratio * change
        return y if self.bias is None else y + self.bias[...].astype(self.dtype)

    def layer_scales(self, params: Mapping[str, np.ndarray]) -> np.ndarray:
        """The scale of each matrix, [...], of this one's parameters by name."""
        stacked = params["kernel"].shape[:-2]
        return np.broadcast_to(params.get("lora_scale", np.float32(self.scale)), stacked)

    def merged(self, params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The parameters of the `Linear` that gives the same products.

        Args:
          params: those of this matrix by name, also of several layers: [..., I, O].
        """
        scales = self.layer_scales(params)[..., None, None]
        kernel = params["kernel"] + scales * (params["lora_a"] @ params["lora_b"])
        if "lora_magnitude" in params:
            wanted = column_norms(params["kernel"]) + params["lora_magnitude"]
            kernel = kernel * (wanted / column_norms(kernel))[..., None, :]
        bias = {"bias": params["bias"]} if "bias" in params else {}
        return {"kernel": np.asarray(kernel), **bias}


def column_norms(kernel: Any) -> jax.Array:
    """Of each column: [..., I, O] to [..., O]."""
    return jnp.linalg.norm(kernel, axis=-2)


def scales(ranks: np.ndarray, alphas: np.ndarray, *, rank_stabilised: bool = False) -> np.ndarray:
    """alpha / rank, or alpha / sqrt(rank); of a rank of 0, which has no change, that of another."""
    of_ranked = alphas / np.maximum(np.sqrt(ranks) if rank_stabilised else ranks, 1)
    some = float((of_ranked[ranks > 0] if (ranks > 0).any() else of_ranked).flat[0])
    return np.where(ranks > 0, of_ranked, some)


def adapt(
    model: nnx.Module,
    *,
    rngs: nnx.Rngs,
    rank: OfMatrices = 8,
    alpha: OfMatrices = 16.0,
    places: Sequence[str] = ("query", "value"),
    rank_stabilised: bool = False,
    magnitudes: bool = False,
    lora_dropout: float = 0.0,
) -> Any:
    """The model with low-rank changes of its matrices, which change nothing at first.

    Args:
      model: the model, which is changed.
      rngs: the source of random numbers.
      rank: that of the changes; 0 for none. `[4, 4, 8, 8]` is by layer, from the input on, and
        `{"": 4, "decoder.*value": 8}` by path, as `t5x_like inspect` shows paths.
      alpha: their scale is alpha / rank; by layer and by path as `rank`.
      places: names of matrices, of `places.NAMES`.
      rank_stabilised: whether their scale is alpha / sqrt(rank) (Kalajdzievski, 2023).
      magnitudes: whether the norm of each column is learned apart (DoRA).
      lora_dropout: the rate of dropout of what their first matrix reads, in training.

    Raises:
      ValueError: a rank is below 0 or all are 0, there is not one for each layer, there are no
        such matrices, or the rate is not from 0 to below 1.
    """
    if not 0 <= lora_dropout < 1:
        raise ValueError(f"lora_dropout is a rate from 0 to below 1, not {lora_dropout}")
    ranked = []

    def adapted(path: str, matrix: Linear) -> Linear:
        stacked = matrix.kernel.shape[:-2]
        ranks = _of_layers(_at(rank, path, "rank"), stacked, path, "rank").astype(int)
        alphas = _of_layers(_at(alpha, path, "alpha"), stacked, path, "alpha")
        if ranks.min() < 0:
            raise ValueError(f"the rank of LoRA is at least 0, not {ranks.min()}")
        if not ranks.any():
            return matrix
        ranked.append(path)
        of_each = scales(ranks, alphas, rank_stabilised=rank_stabilised)
        return LowRank(
            matrix,
            ranks=ranks,
            scales=of_each,
            magnitudes=magnitudes,
            input_dropout=lora_dropout,
            rngs=rngs,
        )

    model = matrices.replace(model, places, adapted)
    if not ranked:
        raise ValueError("the rank of LoRA is at least 1 in one matrix, not 0 in all")
    return model


def _at(value: OfMatrices, path: str, of: str) -> OfLayers:
    """The value for the matrix at a path.

    Raises:
      ValueError: none is given for it.
    """
    if not isinstance(value, Mapping):
        return value
    fitting = [x for pattern, x in value.items() if re.search(pattern, path)]
    if not fitting:
        raise ValueError(f'no {of} is given for {path}: add one for all others, {{"": 8, ...}}')
    return fitting[-1]


def _of_layers(value: OfLayers, stacked: Sequence[int], path: str, of: str) -> np.ndarray:
    """A number for each matrix of a stack, [*stacked].

    Raises:
      ValueError: there are more or fewer numbers than layers.
    """
    numbers = np.asarray(value, float)
    layers = math.prod(stacked)
    if numbers.ndim and numbers.size != layers:
        raise ValueError(
            f"{path} has {layers} layers, and {of} has {numbers.size} numbers: give one for each "
            "layer, or one for all"
        )
    return np.broadcast_to(numbers if not numbers.ndim else numbers.reshape(stacked), stacked)

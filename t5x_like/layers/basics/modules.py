"""The smallest layers: parameters with named axes, matrices, embeddings, norms.

Suffixes: B batch, L length, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.core.partitioning import active_layout, constrain
from t5x_like.layers.basics import norms
from t5x_like.layers.basics.depth import above, below
from t5x_like.layers.basics.product import product
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.basics.vectors import plus_vector

Init = jax.nn.initializers.Initializer
ZEROS, ONES = nnx.initializers.zeros, nnx.initializers.ones


def next_key(rngs: nnx.Rngs) -> jax.Array:
    """The next key for parameters, as `rngs.params()` gives it, in less time where it is traced.

    Flax would ask whether the old and the new count are sharded alike. A traced array has no
    sharding, and JAX goes through the whole trace for an error that says so, which flax drops.
    """
    stream = rngs.params
    count = stream.count[...]
    stream.count.set_value(count + 1)
    return jax.random.fold_in(stream.key[...], count)


def around_zero(bound: float) -> Any:
    """An initialiser with uniform values from -`bound` to `bound`."""
    draw = jax.nn.initializers.uniform(2 * bound)
    return lambda *args, **settings: draw(*args, **settings) - bound


def param(
    init: Init,
    shape: Sequence[int],
    *,
    axes: tuple[str | None, ...],
    rngs: nnx.Rngs,
    compute_dtype: DTypeLike = "float32",
    decayed: bool | None = None,
    multiplied: bool | None = None,
) -> nnx.Param:
    """A float32 parameter with metadata: all that training and accounting know of it.

    Stacking layers adds leading dimensions and does not change `axes`: names are right-aligned.

    Args:
      init: the initialiser of its values.
      shape: the length of each dimension.
      axes: the logical names of the dimensions. It is our own key of metadata: flax's
        `out_sharding` needs a mesh to build a model.
      rngs: the source of random numbers.
      compute_dtype: a step may cast it to this dtype, once for all its uses; layers must do so
        where they use it.
      decayed: whether weight decay applies to it; None: if it has two axes or more.
      multiplied: whether each token is multiplied with all of it, which counts as FLOPs; None: if
        it has two axes or more. It is False for a table whose rows are looked up.

    Raises:
      ValueError: `axes` has not one name for each dimension.
    """
    if len(axes) != len(shape):
        raise ValueError(
            f"a parameter of shape {tuple(shape)} needs as many axis names, got {axes}"
        )
    value = init(next_key(rngs), tuple(shape), jnp.float32)
    flags = {"decayed": decayed, "multiplied": multiplied}
    return nnx.Param(
        value,
        axes=axes,
        compute_dtype=jnp.dtype(compute_dtype).name,
        **{name: flag for name, flag in flags.items() if flag is not None},
    )


class Linear(nnx.Module):
    """x[..., in] -> [..., out]: kernel and bias in float32, product in `dtype`."""

    def __init__(
        self,
        shape: tuple[int, int],
        axes: tuple[str | None, str | None],
        *,
        init: Init,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        bias: bool = False,
    ) -> None:
        self.kernel = param(init, shape, axes=axes, rngs=rngs, compute_dtype=dtype)
        # Split as the output is; a bias as wide as the model is not split, as with norms.
        axis = None if axes[1] == "embed" else axes[1]
        self.bias = (
            param(ZEROS, shape[1:], axes=(axis,), rngs=rngs, compute_dtype=dtype) if bias else None
        )
        self.dtype = dtype

    def __call__(self, x: jax.Array, *, kept: str | None = None) -> jax.Array:
        """The product; `kept` names `x` for rematerialisation (`product`)."""
        y = product(x.astype(self.dtype), self.kernel[...].astype(self.dtype), kept)
        if self.bias is None:
            return y
        if self.kernel.shape[0] < self.kernel.shape[1]:
            # What follows is elementwise, and XLA adds up gradients where it makes them.
            return y + self.bias[...].astype(self.dtype)
        return plus_vector(y, self.bias[...])


class RMSNorm(nnx.Module):
    """x / rms(x) * scale over the last dimension, not centred; float32 mean."""

    def __init__(
        self, d_model: int, *, dtype: DTypeLike, rngs: nnx.Rngs, epsilon: float = 1e-6
    ) -> None:
        # Replicated: sharding a vector would cost a collective per use and save nothing.
        self.scale = param(ONES, (d_model,), axes=(None,), rngs=rngs)
        self.dtype = dtype
        self.epsilon = epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        return norms.rms_norm(x, self.scale[...], self.epsilon).astype(self.dtype)


class LayerNorm(nnx.Module):
    """(x - mean) / std * scale + bias over the last dimension, in float32 (Ba et al., 2016)."""

    def __init__(
        self,
        d_model: int,
        *,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        epsilon: float = 1e-12,
        bias: bool = True,
    ) -> None:
        self.scale = param(ONES, (d_model,), axes=(None,), rngs=rngs)
        self.bias = param(ZEROS, (d_model,), axes=(None,), rngs=rngs) if bias else None
        self.dtype = dtype
        self.epsilon = epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        bias = None if self.bias is None else self.bias[...]
        y = norms.layer_norm(x, self.scale[...], bias, self.epsilon)
        return y.astype(self.dtype)


class Embedding(nnx.Module):
    """A table of token vectors that can also score them (tied logits)."""

    def __init__(self, vocab_size: int, d_model: int, *, init: Init, rngs: nnx.Rngs) -> None:
        shape, axes = (vocab_size, d_model), ("vocab", "embed")
        # Models that score tokens with the table count that themselves.
        self.table = below(param(init, shape, axes=axes, multiplied=False, rngs=rngs))

    def compute_table(self) -> jax.Array:
        """The table [V, D] as products use it, gathered over the FSDP axis."""
        return constrain(self.table[...], "vocab", "embed_act")

    def __call__(self, tokens_BL: jax.Array, *, dtype: DTypeLike) -> jax.Array:
        """[B, L, D] in `dtype`; gradients of repeated tokens add up in float32.

        Where devices have parts of each vector, one looks up its part for the tokens of all of
        them, and they exchange parts for rows: so neither the table nor its gradient is ever whole.
        """
        layout = active_layout()
        if layout is None or not (split := layout.splitting("embed", self.table.shape[-1])):
            x_BLD = self.compute_table()[tokens_BL].astype(dtype)
        else:
            with layout.without(split, of="batch").active():
                tokens_BL = constrain(tokens_BL, "batch", "length")
                x_BLD = self.table[...][tokens_BL].astype(dtype)
                x_BLD = constrain(x_BLD, "batch", "length", "embed")
        return constrain(x_BLD, "batch", "length", "embed_act")

    def token_scores(self, x_BLD: jax.Array, bias_V: jax.Array | None = None) -> TokenScores:
        """Products with every row of the table, and a bias for each, in float32."""
        return TokenScores(x_BLD.astype(jnp.float32), self.compute_table(), bias_V)


class Logits(nnx.Module):
    """A separate (untied) output matrix, whose gradient TPUs keep and send in 16 bits.

    That of a tied table is not: it is a sum with the embedding's, which is in float32.
    """

    def __init__(
        self, d_model: int, vocab_size: int, *, init: Init, rngs: nnx.Rngs, bias: bool = False
    ) -> None:
        self.kernel = above(param(init, (d_model, vocab_size), axes=("embed", "vocab"), rngs=rngs))
        self.bias = above(param(ZEROS, (vocab_size,), axes=("vocab",), rngs=rngs)) if bias else None

    def token_scores(self, x_BLD: jax.Array) -> TokenScores:
        """Products with every column, and a bias for each where there is one, in float32."""
        bias_V = None if self.bias is None else self.bias[...]
        return TokenScores(x_BLD.astype(jnp.float32), self.kernel[...].T, bias_V, narrow=True)

"""The smallest layers: parameters with named axes, matrices, embeddings, norms, dropout.

Suffixes: B batch, L length, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.product import product
from t5x_like.partitioning import constrain

Init = jax.nn.initializers.Initializer


def param(
    init: Init, shape: Sequence[int], *, axes: tuple[str | None, ...], rngs: nnx.Rngs
) -> nnx.Param:
    """A float32 parameter whose dimensions carry the logical names `axes`.

    `axes` is a metadata key of ours, as flax's `out_sharding` needs a mesh to build a model.
    Stacking layers adds leading dimensions and leaves `axes` alone: names are right-aligned.
    """
    if len(axes) != len(shape):
        raise ValueError(
            f"a parameter of shape {tuple(shape)} needs as many axis names, got {axes}"
        )
    return nnx.Param(init(rngs.params(), tuple(shape), jnp.float32), axes=axes)


class Linear(nnx.Module):
    """x[..., in] -> [..., out], without a bias: kernel in float32, product in `dtype`."""

    def __init__(
        self,
        shape: tuple[int, int],
        axes: tuple[str | None, str | None],
        *,
        init: Init,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.kernel = param(init, shape, axes=axes, rngs=rngs)
        self.dtype = dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        return product(x.astype(self.dtype), self.kernel[...].astype(self.dtype))


class RMSNorm(nnx.Module):
    """x / rms(x) * scale over the last dimension, not centred; the mean is taken in float32."""

    def __init__(
        self, d_model: int, *, dtype: DTypeLike, rngs: nnx.Rngs, epsilon: float = 1e-6
    ) -> None:
        # Replicated: sharding a vector would cost a collective per use and save nothing.
        self.scale = param(nnx.initializers.ones, (d_model,), axes=(None,), rngs=rngs)
        self.dtype = dtype
        self.epsilon = epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.astype(jnp.float32)
        x = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + self.epsilon)
        return x.astype(self.dtype) * self.scale[...].astype(self.dtype)


class Embedding(nnx.Module):
    """A table of token vectors that can also score them (tied logits)."""

    def __init__(self, vocab_size: int, d_model: int, *, init: Init, rngs: nnx.Rngs) -> None:
        self.table = param(init, (vocab_size, d_model), axes=("vocab", "embed"), rngs=rngs)

    def _compute_table(self) -> jax.Array:
        # Gathered over the FSDP axis before use: the gradient of a lookup in a table that is split
        # along its vectors makes XLA replicate a whole activation.
        return constrain(self.table[...], "vocab", "embed_act")

    def __call__(self, tokens_BL: jax.Array, *, dtype: DTypeLike) -> jax.Array:
        """[B, L, D] in `dtype`; gradients of repeated tokens add up in float32."""
        x_BLD = self._compute_table()[tokens_BL].astype(dtype)
        return constrain(x_BLD, "batch", "length", "embed_act")

    def attend(self, x_BLD: jax.Array) -> jax.Array:
        """Products with every row of the table: float32 [B, L, V]."""
        logits_BLV = product(x_BLD.astype(jnp.float32), self._compute_table().T)
        return constrain(logits_BLV, "batch", "length", "vocab")


class Logits(nnx.Module):
    """An output matrix of its own (untied): x[B, L, D] -> float32 [B, L, V]."""

    def __init__(self, d_model: int, vocab_size: int, *, init: Init, rngs: nnx.Rngs) -> None:
        self.kernel = param(init, (d_model, vocab_size), axes=("embed", "vocab"), rngs=rngs)

    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        logits_BLV = product(x_BLD.astype(jnp.float32), self.kernel[...])
        return constrain(logits_BLV, "batch", "length", "vocab")


def subkeys(key: jax.Array | None, n: int) -> Sequence[jax.Array | None]:
    """`n` independent keys, or as many None: deterministic."""
    return [None] * n if key is None else list(jax.random.split(key, n))


def dropout(
    x: jax.Array, key: jax.Array | None, *, rate: float, shared: Sequence[int] = ()
) -> jax.Array:
    """Zeroes elements with probability `rate` and scales the rest; `key` None changes nothing.

    One mask serves all positions along the dimensions `shared`.
    """
    if key is None or rate == 0.0:
        return x
    shape = [1 if d in shared else size for d, size in enumerate(x.shape)]
    keep = jax.random.bernoulli(key, 1.0 - rate, shape)
    return jnp.where(keep, x / (1.0 - rate), jnp.zeros((), x.dtype))


def residual(
    x_BLD: jax.Array, y_BLD: jax.Array, *, rate: float, key: jax.Array | None
) -> jax.Array:
    """x + dropout(y), the same units dropped at all positions of a row."""
    y_BLD = dropout(y_BLD, key, rate=rate, shared=(1,))
    return constrain(x_BLD + y_BLD, "batch", "length", "embed_act")

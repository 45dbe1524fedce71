"""Encoder and decoder layers that norm before each part and add after it (T5, section 2.1).

Suffixes: B batch, L target length, M input length, T cache length, D d_model, H heads, K d_kv.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.attention import Attention, KeysValues
from t5x_like.layers.basic import residual, subkeys
from t5x_like.layers.positions import RelativeBias

Make = Callable[[nnx.Rngs], nnx.Module]


@dataclasses.dataclass(frozen=True)
class Parts:
    """How to make what a layer consists of; `relative` None: the layer has no bias of its own."""

    norm: Make
    attention: Callable[[nnx.Rngs], Attention]
    mlp: Make
    relative: Callable[[nnx.Rngs], RelativeBias] | None
    dropout_rate: float


class EncoderLayer(nnx.Module):
    """Self-attention and feed-forward."""

    def __init__(self, parts: Parts, *, rngs: nnx.Rngs) -> None:
        self.attention_norm = parts.norm(rngs)
        self.attention = parts.attention(rngs)
        self.relative = parts.relative and parts.relative(rngs)
        self.mlp_norm = parts.norm(rngs)
        self.mlp = parts.mlp(rngs)
        self.rate = parts.dropout_rate

    def __call__(
        self,
        x_BMD: jax.Array,
        *,
        mask: jax.Array,
        bias: jax.Array | None,
        key: jax.Array | None,
    ) -> jax.Array:
        """[B, M, D]; `bias` is used where the layer has none of its own."""
        rate, keys = self.rate, subkeys(key, 4)
        if self.relative is not None:
            bias = self.relative(x_BMD.shape[1], x_BMD.shape[1])
        h_BMD = self.attention_norm(x_BMD)
        memory = self.attention.keys_values(h_BMD)
        h_BMD = self.attention(h_BMD, memory, mask=mask, bias=bias, rate=rate, key=keys[0])
        x_BMD = residual(x_BMD, h_BMD, rate=rate, key=keys[1])
        h_BMD = self.mlp(self.mlp_norm(x_BMD), rate=rate, key=keys[2])
        return residual(x_BMD, h_BMD, rate=rate, key=keys[3])


class DecoderLayer(nnx.Module):
    """Causal self-attention, attention to the encoder's output, feed-forward."""

    def __init__(self, parts: Parts, *, rngs: nnx.Rngs) -> None:
        self.self_norm = parts.norm(rngs)
        self.self_attention = parts.attention(rngs)
        self.relative = parts.relative and parts.relative(rngs)
        self.cross_norm = parts.norm(rngs)
        self.cross_attention = parts.attention(rngs)
        self.mlp_norm = parts.norm(rngs)
        self.mlp = parts.mlp(rngs)
        self.rate = parts.dropout_rate

    def __call__(
        self,
        x_BLD: jax.Array,
        encoded_BMD: jax.Array,
        *,
        self_mask: jax.Array,
        cross_mask: jax.Array,
        bias: jax.Array | None,
        key: jax.Array | None,
    ) -> jax.Array:
        """[B, L, D]; `bias` is used in self-attention where the layer has none of its own."""
        rate, keys = self.rate, subkeys(key, 6)
        if self.relative is not None:
            bias = self.relative(x_BLD.shape[1], x_BLD.shape[1])
        h_BLD = self.self_norm(x_BLD)
        past = self.self_attention.keys_values(h_BLD)
        h_BLD = self.self_attention(h_BLD, past, mask=self_mask, bias=bias, rate=rate, key=keys[0])
        x_BLD = residual(x_BLD, h_BLD, rate=rate, key=keys[1])
        h_BLD = self.cross_norm(x_BLD)
        memory = self.cross_attention.keys_values(encoded_BMD)
        h_BLD = self.cross_attention(h_BLD, memory, mask=cross_mask, rate=rate, key=keys[2])
        x_BLD = residual(x_BLD, h_BLD, rate=rate, key=keys[3])
        h_BLD = self.mlp(self.mlp_norm(x_BLD), rate=rate, key=keys[4])
        return residual(x_BLD, h_BLD, rate=rate, key=keys[5])

    def step(
        self,
        x_B1D: jax.Array,
        past: KeysValues,
        memory: KeysValues,
        *,
        position: jax.Array,
        memory_mask: jax.Array,
        bias: jax.Array | None,
    ) -> tuple[jax.Array, KeysValues]:
        """The layer at one position: its output and its own new keys and values, [B, 1, H, K].

        `past` has room for T positions, of which those before `position` (int32 []) are filled.
        """
        length = past.keys.shape[1]
        if self.relative is not None:
            bias = self.relative.row(position, length)
        h_B1D = self.self_norm(x_B1D)
        new = self.self_attention.keys_values(h_B1D)
        seen = insert(past, new, position=position, axis=1)
        mask = jnp.arange(length) <= position
        x_B1D += self.self_attention(h_B1D, seen, mask=mask, bias=bias)
        x_B1D += self.cross_attention(self.cross_norm(x_B1D), memory, mask=memory_mask)
        return x_B1D + self.mlp(self.mlp_norm(x_B1D), rate=0.0, key=None), new


def insert(past: KeysValues, new: KeysValues, *, position: jax.Array, axis: int) -> KeysValues:
    """`past` with `new` written at `position` along `axis`."""
    return jax.tree.map(
        lambda old, now: jax.lax.dynamic_update_slice_in_dim(old, now, position, axis), past, new
    )

"""Encoder and decoder layers that norm before each part (T5, GPT-2) or after it (BERT, BART).

Suffixes: B batch, L target length, M input length, T cache length, D d_model, H heads, K d_kv.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
from flax import nnx

from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.multi_head import Attention
from t5x_like.layers.attention.positions import RelativeBias
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.dropout import Dropouts, residual, subkeys

Norm = Callable[[jax.Array], jax.Array]


class Placement(NamedTuple):
    """Where a part is normed: a norm of its input, and a norm of the sum after it."""

    before: Callable[[Norm, jax.Array], jax.Array]
    after: Callable[[Norm, jax.Array], jax.Array]


def _apply(norm: Norm, x: jax.Array) -> jax.Array:
    return norm(x)


def _skip(norm: Norm, x: jax.Array) -> jax.Array:
    return x


PRE_NORM = Placement(before=_apply, after=_skip)
"""x + part(norm(x)) (T5, section 2.1)."""

POST_NORM = Placement(before=_skip, after=_apply)
"""norm(x + part(x)) (Transformer, section 3.1)."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of a layer, as constructors; `relative` None: it has no bias of its own."""

    norm: Callable[[nnx.Rngs], Norm]
    attention: Callable[[nnx.Rngs], Attention]
    mlp: Callable[[nnx.Rngs], Callable[..., jax.Array]]
    dropouts: Dropouts
    placement: Placement
    relative: Callable[[nnx.Rngs], RelativeBias] | None = None


class _Layer(nnx.Module):
    """The common part of encoder and decoder layers: feed-forward, placement of norms, dropout."""

    def __init__(self, parts: Parts, *, rngs: nnx.Rngs) -> None:
        self.mlp_norm = parts.norm(rngs)
        self.mlp = parts.mlp(rngs)
        self.relative = parts.relative and parts.relative(rngs)
        self.dropouts = parts.dropouts
        self.placement = parts.placement

    def attended(
        self,
        norm: Norm,
        attention: Attention,
        x_BLD: jax.Array,
        memory: KeysValues | None = None,
        *,
        view: View,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """An attention part, over `memory` or over itself: [B, L, D] and the probabilities."""
        keys = subkeys(key, 2)
        h_BLD = self.placement.before(norm, x_BLD)
        if memory is None:
            memory = attention.keys_values(h_BLD, rotary=view.rotary)
        h_BLD, p_BHLM = attention(h_BLD, memory, view=view, dropouts=self.dropouts, key=keys[0])
        after = keys[1] if self.dropouts.after_attention else None
        x_BLD = residual(x_BLD, h_BLD, dropouts=self.dropouts, key=after)
        return self.placement.after(norm, x_BLD), p_BHLM

    def feed_forward(self, x_BLD: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """The feed-forward part, [B, L, D]."""
        keys = subkeys(key, 2)
        h_BLD = self.placement.before(self.mlp_norm, x_BLD)
        h_BLD = self.mlp(h_BLD, dropouts=self.dropouts, key=keys[0])
        after = keys[1] if self.dropouts.after_mlp else None
        x_BLD = residual(x_BLD, h_BLD, dropouts=self.dropouts, key=after)
        return self.placement.after(self.mlp_norm, x_BLD)

    def seen(self, view: View, length: int) -> View:
        """The view of self-attention over `length` positions, with the bias of the layer."""
        return view if self.relative is None else view.with_bias(self.relative(length, length))

    def seen_at(self, view: View, position: jax.Array, length: int) -> View:
        """The same for the query at `position`, int32 []."""
        if self.relative is None:
            return view
        return view.with_bias(self.relative.row(position, length))

    def remembered(
        self,
        norm: Norm,
        attention: Attention,
        x_B1D: jax.Array,
        past: KeysValues,
        *,
        position: jax.Array,
        view: View,
    ) -> tuple[KeysValues, KeysValues]:
        """Keys and values of the token at `position`, and the past that includes them."""
        new = attention.keys_values(self.placement.before(norm, x_B1D), rotary=view.rotary)
        return new, insert(past, new, position=position, axis=1)


class EncoderLayer(_Layer):
    """Self-attention and feed-forward; with a causal mask, a layer of a lone decoder."""

    def __init__(self, parts: Parts, *, rngs: nnx.Rngs) -> None:
        super().__init__(parts, rngs=rngs)
        self.attention_norm = parts.norm(rngs)
        self.attention = parts.attention(rngs)

    def __call__(
        self,
        x_BMD: jax.Array,
        *,
        view: View,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """[B, M, D] and the probabilities."""
        keys = subkeys(key, 2)
        view = self.seen(view, x_BMD.shape[1])
        x_BMD, p_BHMM = self.attended(
            self.attention_norm, self.attention, x_BMD, view=view, key=keys[0]
        )
        return self.feed_forward(x_BMD, keys[1]), p_BHMM

    def step(
        self,
        x_B1D: jax.Array,
        past: KeysValues,
        *,
        position: jax.Array,
        view: View,
    ) -> tuple[jax.Array, KeysValues]:
        """The layer at one position: its output and its own new keys and values, [B, 1, H, K].

        `past` has room for T positions; those before `position` (int32 []) are filled. The `view`
        is that of one query and T keys.
        """
        view = self.seen_at(view, position, past.keys.shape[1])
        norm, attention = self.attention_norm, self.attention
        new, seen = self.remembered(norm, attention, x_B1D, past, position=position, view=view)
        x_B1D, _ = self.attended(norm, attention, x_B1D, seen, view=view)
        return self.feed_forward(x_B1D), new


class DecoderLayer(_Layer):
    """Causal self-attention, attention to the encoder's output, and feed-forward."""

    def __init__(self, parts: Parts, *, rngs: nnx.Rngs) -> None:
        super().__init__(parts, rngs=rngs)
        self.self_norm = parts.norm(rngs)
        self.self_attention = parts.attention(rngs)
        self.cross_norm = parts.norm(rngs)
        self.cross_attention = parts.attention(rngs)

    def __call__(
        self,
        x_BLD: jax.Array,
        encoded_BMD: jax.Array,
        *,
        view: View,
        cross: View,
        key: jax.Array | None,
    ) -> tuple[jax.Array, tuple[jax.Array | None, jax.Array | None]]:
        """[B, L, D], and the probabilities of self-attention and of cross-attention."""
        keys = subkeys(key, 3)
        view = self.seen(view, x_BLD.shape[1])
        x_BLD, p_BHLL = self.attended(
            self.self_norm, self.self_attention, x_BLD, view=view, key=keys[0]
        )
        memory = self.cross_attention.keys_values(encoded_BMD)
        x_BLD, p_BHLM = self.attended(
            self.cross_norm, self.cross_attention, x_BLD, memory, view=cross, key=keys[1]
        )
        return self.feed_forward(x_BLD, keys[2]), (p_BHLL, p_BHLM)

    def step(
        self,
        x_B1D: jax.Array,
        past: KeysValues,
        memory: KeysValues,
        *,
        position: jax.Array,
        view: View,
        cross: View,
    ) -> tuple[jax.Array, KeysValues]:
        """Like `EncoderLayer.step`; `memory` holds keys and values of the encoder's output."""
        view = self.seen_at(view, position, past.keys.shape[1])
        norm, attention = self.self_norm, self.self_attention
        new, seen = self.remembered(norm, attention, x_B1D, past, position=position, view=view)
        x_B1D, _ = self.attended(norm, attention, x_B1D, seen, view=view)
        x_B1D, _ = self.attended(self.cross_norm, self.cross_attention, x_B1D, memory, view=cross)
        return self.feed_forward(x_B1D), new


def insert(past: KeysValues, new: KeysValues, *, position: jax.Array, axis: int) -> KeysValues:
    """`past` with `new` written at `position` along `axis`."""
    return jax.tree.map(
        lambda old, now: jax.lax.dynamic_update_slice_in_dim(old, now, position, axis), past, new
    )

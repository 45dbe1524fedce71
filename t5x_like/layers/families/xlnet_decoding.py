"""An XLNet that writes: tokens from left to right, each predicted by the query stream.

A token sees itself and those before it, so its states stay as they are while more is written. The
place that is predicted sees all tokens before it (XLNet, section 2.3, in the usual order).

Suffixes: B batch, L prompt length, T cache length, C relative positions, D d_model, H heads,
K d_kv, N layers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.relative_attention import (
    PositionKeys,
    RelativeView,
    relative_positions,
)
from t5x_like.layers.stacks.blocks import insert
from t5x_like.layers.stacks.two_streams import TwoStreamLayer

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """The state that decoding keeps between positions."""

    past: KeysValues  # of the tokens, [N, B, T, H, K]
    position_keys: jax.Array  # projected relative positions, equal for all rows, [N, H, C, K]
    starts: jax.Array  # int32 [B], the position of each row's first token; before it is padding

    def repeat(self, times: int) -> Cache:
        """Each row `times` times in a row, for several answers to a text: B * times rows."""
        past = jax.tree.map(lambda x: jnp.repeat(x, times, axis=1), self.past)
        return dataclasses.replace(self, past=past, starts=jnp.repeat(self.starts, times))

    def reorder(self, rows_B: jax.Array) -> Cache:
        """The cache where row b has written what `rows_B[b]` had; both answer the same text."""
        past = jax.tree.map(lambda x: x[:, rows_B], self.past)
        return dataclasses.replace(self, past=past)


def prefill(encoder: Any, batch: Batch, *, max_length: int) -> Cache:
    """Reads prompts, which end at the same position: shorter ones have padding before them.

    Args:
      encoder: an `xlnet.Encoder`.
      batch: int32 `decoder_input_tokens` [B, L], and where prompts differ in length,
        `decoder_segment_ids` [B, L], 0 for padding and 1 for tokens.
      max_length: T, the positions that the cache has room for.
    """
    config, layers = encoder.config, encoder.stack
    tokens_BL = batch["decoder_input_tokens"]
    length = tokens_BL.shape[1]
    counts_BL = batch.get("decoder_segment_ids", jnp.ones_like(tokens_BL))
    starts = length - counts_BL.sum(axis=1, dtype=jnp.int32)
    present = jnp.arange(length) >= starts[:, None]
    view = RelativeView(
        mask=Mask(present=present, causal=True, itself=True),
        relative=_positions(config, length),
        biases=encoder.biases,
    )
    decoded = _positions(config, max_length)

    def body(layer: TwoStreamLayer, x_BLD: jax.Array, _: None) -> tuple[jax.Array, tuple]:
        attention = layer.attention
        layer_cache = attention.keys_values(x_BLD), attention.position_keys(decoded, 1).of_rows[0]
        return layer(x_BLD, None, views=[view], key=None)[0], layer_cache

    x_BLD = encoder.tokens(tokens_BL, dtype=config.dtype)
    _, (past, position_keys) = layers(body, x_BLD)
    room = [(0, 0), (0, 0), (0, max_length - length), (0, 0), (0, 0)]
    return Cache(jax.tree.map(lambda x: jnp.pad(x, room), past), position_keys, starts)


def step(
    encoder: Any, cache: Cache, tokens_B: jax.Array, *, position: jax.Array
) -> tuple[jax.Array, Cache]:
    """The state that predicts what follows the tokens at `position`: [B, 1, D]; the new cache."""
    config, rows = encoder.config, len(tokens_B)
    length = cache.past.keys.shape[2]
    at_T = jnp.arange(length)
    view = RelativeView(
        # The place that is predicted does not see itself: both see what the token sees.
        mask=Mask(present=(at_T <= position) & (at_T >= cache.starts[:, None])),
        relative=_positions(config, length),
        biases=encoder.biases,
        asking=jnp.broadcast_to(position + jnp.arange(2), (rows, 2)),
    )
    token_B1D = encoder.tokens(tokens_B[:, None], dtype=config.dtype)
    predicted = jnp.broadcast_to(encoder.predicted[...].astype(config.dtype), token_B1D.shape)

    def body(
        layer: TwoStreamLayer, x_B2D: jax.Array, layer_cache: tuple
    ) -> tuple[jax.Array, KeysValues]:
        past, keys_HCK = layer_cache
        keys = PositionKeys(jnp.broadcast_to(keys_HCK, (rows, *keys_HCK.shape)))
        return layer.step(x_B2D, past, position=position, position_keys=keys, view=view)

    x_B2D = jnp.concatenate([token_B1D, predicted], axis=1)
    x_B2D, new = encoder.stack(body, x_B2D, (cache.past, cache.position_keys))
    past = insert(cache.past, new, position=position, axis=2)
    return x_B2D[:, 1:], dataclasses.replace(cache, past=past)


def _positions(config: Any, length: int) -> Any:
    """The vectors of relative positions in rows of `length` tokens, in the model's dtype."""
    positions = relative_positions(length, length, width=config.d_model, clamp=config.clamp_len)
    return positions._replace(vectors=positions.vectors.astype(config.dtype))

"""What GPT and a prefix language model share: one stack that reads what it has written.

Suffixes: B batch, L length, T cache length, D d_model, H heads, K d_kv, N layers, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from t5x_like.layers import embeddings
from t5x_like.layers.attention import masks
from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.dropout import subkeys
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.target_loss import TargetLoss
from t5x_like.layers.stacks.blocks import EncoderLayer
from t5x_like.layers.stacks.encoder import EncoderStack, Hidden, with_last

if TYPE_CHECKING:
    from t5x_like.core.protocols import Batch


class DecoderOnly(TargetLoss):
    """A stack whose queries see earlier keys; inside a prefix, all see each other.

    A batch holds int32 `decoder_input_tokens`, and for the loss `decoder_target_tokens` and float32
    `decoder_loss_weights`, [B, L] each; when rows are packed, `decoder_segment_ids` (0 is padding)
    and `decoder_positions`; and where prefixes are seen from both sides,
    `decoder_causal_attention`, 1 in a prefix (T5, figure 4). Rows are filled up at their end.

    A subclass sets the attributes below, and may give the stack a bias and a last norm.
    """

    stack: EncoderStack
    max_positions: int | None = None  # where positions have a table

    def embedded(
        self,
        tokens_BL: jax.Array,
        key: jax.Array | None = None,
        *,
        positions_BL: jax.Array | None = None,
    ) -> jax.Array:
        """What the first layer reads, [B, L, D].

        `positions_BL`, int32 [B, L] or [1, L], are the tokens' positions if not 0, 1, 2, ...
        """
        raise NotImplementedError

    def normed(self, x_BLD: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """What follows the last layer; nothing by default."""
        return x_BLD

    def bias(self, length: int, *, position: jax.Array | None = None) -> jax.Array | None:
        """The attention bias, [1, H, L, L], or that of the query at `position`, [1, H, 1, L]."""
        return None

    def hidden(
        self,
        batch: Batch,
        key: jax.Array | None = None,
        *,
        return_hidden: bool = False,
        return_attention: bool = False,
    ) -> Hidden:
        """The states of a batch."""
        first, stack, last = subkeys(key, 3)
        tokens_BL = batch["decoder_input_tokens"]
        hidden = self.stack.encode(
            self.embedded(tokens_BL, first, positions_BL=batch.get("decoder_positions")),
            mask=_visible(batch),
            bias=self.bias(tokens_BL.shape[1]),
            key=stack,
            return_hidden=return_hidden,
            return_attention=return_attention,
        )
        return with_last(hidden, self.normed(hidden.last, last))

    def init_cache(self, batch_size: int, *, max_length: int) -> KeysValues:
        """A cache without any keys and values yet, [N, B, T, H, K] each.

        Raises:
          ValueError: `max_length` exceeds the model's positions.
        """
        embeddings.check_length(max_length, max_positions=self.max_positions)
        config = self.config
        layers = self.stack.num_layers
        shape = (layers, batch_size, max_length, config.num_heads, config.d_kv)
        return KeysValues(jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype))

    def prefill(self, batch: Batch, *, max_length: int) -> tuple[jax.Array, KeysValues]:
        """Reads prompts of one length L at once; positions from L on are then decoded.

        Args:
          batch: as in `hidden`.
          max_length: T, the cache's length.

        Returns:
          Logits after the last token, float32 [B, V], and the cache.

        Raises:
          ValueError: `max_length` exceeds the model's positions.
        """
        embeddings.check_length(max_length, max_positions=self.max_positions)
        tokens_BL = batch["decoder_input_tokens"]
        length = tokens_BL.shape[1]
        mask, bias = _visible(batch), self.bias(length)

        def body(layer: EncoderLayer, x_BLD: jax.Array, _: None) -> tuple[jax.Array, KeysValues]:
            read_BLD = layer.placement.before(layer.attention_norm, x_BLD)
            memory = layer.attention.keys_values(read_BLD)
            return layer(x_BLD, mask=mask, bias=bias, key=None)[0], memory

        x_BLD, past = self.stack(body, self.embedded(tokens_BL))
        room = [(0, 0), (0, 0), (0, max_length - length), (0, 0), (0, 0)]
        cache = jax.tree.map(lambda x: jnp.pad(x, room), past)
        return self.score(self.normed(x_BLD[:, -1:]))[:, 0], cache

    def decode_step(
        self, cache: KeysValues, tokens_B: jax.Array, position: jax.Array
    ) -> tuple[jax.Array, KeysValues]:
        """Logits after the tokens at `position` (int32, from 0), float32 [B, V]; the new cache."""
        length = cache.keys.shape[2]
        x_B1D, cache = self.stack.step(
            self.embedded(tokens_B[:, None], positions_BL=position[None, None]),
            cache,
            position=position,
            mask=jnp.arange(length) <= position,
            bias=self.bias(length, position=position),
        )
        return self.score(self.normed(x_B1D))[:, 0], cache

    def tokens(self, batch: Batch) -> jax.Array:
        return accounting.count(_segments(batch))

    def flops(self, batch: Batch) -> jax.Array:
        """Counts operations like an `EncoderDecoder`, with the logits of every token."""
        segments_BL = _segments(batch)
        config, stack = self.config, self.stack
        products = accounting.encoder_products(
            stack.layers,
            segments_BL,
            num_layers=stack.num_layers,
            width=config.num_heads * config.d_kv,
            causal=True,
        )
        if "decoder_causal_attention" in batch:
            prefix_BL = segments_BL * batch["decoder_causal_attention"]
            pairs = masks.visible_pairs(prefix_BL, prefix_BL)
            pairs -= masks.visible_pairs(prefix_BL, prefix_BL, causal=True)
            products += 2.0 * config.num_heads * config.d_kv * stack.num_layers * pairs
        products += accounting.count(segments_BL) * config.d_model * config.vocab_size
        return accounting.step_flops(products)


def _visible(batch: Batch) -> jax.Array:
    """The attention mask, bool [B|1, 1, L, L]."""
    mask = masks.causal(batch["decoder_input_tokens"].shape[1])
    if "decoder_causal_attention" in batch:
        prefix_BL = batch["decoder_causal_attention"] > 0
        mask |= (prefix_BL[:, :, None] & prefix_BL[:, None, :])[:, None]
    if "decoder_segment_ids" in batch:
        segments_BL = batch["decoder_segment_ids"]
        mask &= masks.same_segment(segments_BL, segments_BL)
    return mask


def _segments(batch: Batch) -> jax.Array:
    """Each token's example, from 1; 0 is padding, which follows everything with a weight."""
    if "decoder_segment_ids" in batch:
        return batch["decoder_segment_ids"]
    scored_BL = (batch["decoder_loss_weights"] > 0).astype(jnp.int32)
    return jax.lax.cummax(scored_BL, axis=1, reverse=True)

"""The common base of T5 and BART: an encoder, a decoder, the loss of its targets, decoding.

Suffixes: B batch, L target length, M input length, D d_model, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import jax
import jax.numpy as jnp

from t5x_like.core.abilities import (
    LAST,
    CountsFlops,
    GivesStates,
    ScoresTargets,
    States,
    Want,
    Writes,
)
from t5x_like.layers.attention import masks
from t5x_like.layers.attention.masks import ALIKE, Mask, Traits
from t5x_like.layers.attention.view import View, Views
from t5x_like.layers.basics import embeddings
from t5x_like.layers.basics.dropout import subkeys
from t5x_like.layers.families import prompts
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.target_loss import TargetLoss
from t5x_like.layers.stacks.decoder import ALL_HEADS, Cache, DecoderStack, Heads
from t5x_like.layers.stacks.encoder import EncoderStack, with_last

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch
    from t5x_like.layers.families.prompts import Prompt

Side = Literal["encoder", "decoder"]
HEAD_MASKS = ("encoder_head_mask", "decoder_head_mask", "cross_head_mask")


class EncoderDecoder(TargetLoss):
    """An encoder-decoder whose loss is the cross entropy of the decoder's targets.

    A batch holds int32 `encoder_input_tokens` [B, M], `decoder_input_tokens` and
    `decoder_target_tokens` [B, L], float32 `decoder_loss_weights` [B, L], and, when rows are
    packed, `encoder_segment_ids` and `decoder_segment_ids` (0 is padding) and, for learned
    positions, `encoder_positions` and `decoder_positions`. No query sees a `padding` token;
    an `encoder_attention_mask` [B, M], where there is one, says what counts instead. Float32
    `encoder_head_mask`, `decoder_head_mask` and `cross_head_mask`, [B, N, H] each, multiply the
    values of heads: 0 switches one off.

    A subclass sets the attributes below, and may give its sides positions, biases and last norms.
    With a `prompt`, virtual tokens are in front of the encoder's (`layers.adapters.prompt`).
    """

    padding: int  # the id that fills up rows
    encoder: EncoderStack
    decoder: DecoderStack
    abilities: ClassVar[tuple[type, ...]] = (CountsFlops, GivesStates, ScoresTargets, Writes)
    reads_apart: ClassVar = True
    prompt: Prompt | None = None

    @property
    def max_tokens(self) -> int | None:
        """The number of its positions, less those of a prompt; None for any number."""
        return prompts.room(self.prompt, super().max_tokens)

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """The encoder's states, which need no targets; `hidden` gives the decoder's."""
        batch = prompts.before(self.prompt, batch)
        states = self.encode(
            batch["encoder_input_tokens"],
            mask_BM=batch.get("encoder_attention_mask"),
            traits=self.encoder_traits(batch),
            heads_BNH=batch.get("encoder_head_mask"),
            want=want,
        )
        return prompts.without(self.prompt, states)

    def embedded(
        self,
        tokens_BL: jax.Array,
        key: jax.Array | None = None,
        *,
        side: Side,
        positions_BL: jax.Array | None = None,
    ) -> jax.Array:
        """The input of the first layer, [B, L, D].

        `positions_BL`, int32 [B, L] or [1, L], are the tokens' positions if not 0, 1, 2, ...
        """
        raise NotImplementedError

    def normed(self, x_BLD: jax.Array, key: jax.Array | None = None, *, side: Side) -> jax.Array:
        """The output of a side, made from that of its last layer; the same by default."""
        return x_BLD

    def bias(
        self, length: int, *, side: Side, position: jax.Array | None = None
    ) -> jax.Array | None:
        """The bias of self-attention, [1, H, L, L], or of the query at `position`, [1, H, 1, L]."""
        return None

    def encoder_traits(self, batch: Batch) -> Traits:
        """What a batch says of the encoder's queries and keys, besides which of them count."""
        return Traits(segments=batch.get("encoder_segment_ids"))

    def encoder_view(self, mask: Mask, length: int) -> Views:
        """What the encoder's layers look through, in rows of this length."""
        return View(mask=mask, bias=self.bias(length, side="encoder"))

    def hidden(
        self,
        batch: Batch,
        key: jax.Array | None = None,
        *,
        want: Want = LAST,
    ) -> States:
        """The decoder's states of a batch."""
        batch = prompts.before(self.prompt, batch)
        encoder_key, decoder_key = subkeys(key, 2)
        encoded = self.encode(
            batch["encoder_input_tokens"],
            encoder_key,
            mask_BM=batch.get("encoder_attention_mask"),
            traits=self.encoder_traits(batch),
            positions_BM=batch.get("encoder_positions"),
            heads_BNH=batch.get("encoder_head_mask"),
        )
        encoder_BM, decoder_BL = self._segments(batch)
        decoder, encoder = ALIKE, ALIKE
        if "encoder_segment_ids" in batch:
            decoder, encoder = Traits(segments=decoder_BL), Traits(segments=encoder_BM)
        return self.decode(
            batch["decoder_input_tokens"],
            encoded.last,
            mask=Mask(present=decoder_BL, causal=True, queries=decoder, keys=decoder),
            cross=Mask(present=encoder_BM, queries=decoder, keys=encoder),
            heads=Heads(batch.get("decoder_head_mask"), batch.get("cross_head_mask")),
            key=decoder_key,
            positions_BL=batch.get("decoder_positions"),
            want=want,
        )

    def encode(
        self,
        tokens_BM: jax.Array,
        key: jax.Array | None = None,
        *,
        mask_BM: jax.Array | None = None,
        traits: Traits = ALIKE,
        positions_BM: jax.Array | None = None,
        heads_BNH: jax.Array | None = None,
        want: Want = LAST,
    ) -> States:
        """The encoder's states; `mask_BM`, if given, is above 0 for the tokens that count.

        `traits` are those of queries and keys, `positions_BM` are as in `embedded`, `heads_BNH` as
        in `EncoderStack.encode`.
        """
        first, stack, last = subkeys(key, 3)
        mask = Mask(
            present=tokens_BM != self.padding if mask_BM is None else mask_BM,
            queries=traits,
            keys=traits,
        )
        hidden = self.encoder.encode(
            self.embedded(tokens_BM, first, side="encoder", positions_BL=positions_BM),
            views=self.encoder_view(mask, tokens_BM.shape[1]),
            heads_BNH=heads_BNH,
            key=stack,
            want=want,
        )
        return with_last(hidden, self.normed(hidden.last, last, side="encoder"))

    def decode(
        self,
        tokens_BL: jax.Array,
        encoded_BMD: jax.Array,
        *,
        mask: Mask,
        cross: Mask,
        heads: Heads = ALL_HEADS,
        key: jax.Array | None = None,
        positions_BL: jax.Array | None = None,
        want: Want = LAST,
    ) -> States:
        """The decoder's states; `mask` is of self-attention, and `cross` of cross-attention."""
        first, stack, last = subkeys(key, 3)
        hidden = self.decoder.decode(
            self.embedded(tokens_BL, first, side="decoder", positions_BL=positions_BL),
            encoded_BMD,
            views=View(mask=mask, bias=self.bias(tokens_BL.shape[1], side="decoder")),
            cross=View(mask=cross),
            heads=heads,
            key=stack,
            want=want,
        )
        return with_last(hidden, self.normed(hidden.last, last, side="decoder"))

    def prefill(self, batch: Batch, *, max_length: int) -> Cache:
        """Reads the inputs, and all but the last of the answers' first tokens.

        Args:
          batch: int32 `encoder_input_tokens` [B, M], optionally `encoder_attention_mask` [B, M],
            and `decoder_input_tokens` [B, L], L at least 1.
          max_length: T, the positions that the cache has room for.

        Returns:
          The cache; `decode_step` continues with the last token, at position L - 1.

        Raises:
          ValueError: `max_length` exceeds the model's positions.
        """
        embeddings.check_length(max_length, max_positions=self.max_positions)
        batch = prompts.before(self.prompt, batch)
        inputs_BM, tokens_BL = batch["encoder_input_tokens"], batch["decoder_input_tokens"]
        mask_BM = batch.get("encoder_attention_mask", inputs_BM != self.padding)
        cache = self.decoder.init_cache(
            self.encode(inputs_BM, mask_BM=mask_BM, traits=self.encoder_traits(batch)).last,
            present_BM=mask_BM,
            max_length=max_length,
        )
        for position in range(tokens_BL.shape[1] - 1):
            _, cache = self.decode_step(cache, tokens_BL[:, position], jnp.int32(position))
        return cache

    def decode_step(
        self, cache: Cache, tokens_B: jax.Array, position: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """Logits after the tokens at `position` (int32, from 0), float32 [B, V]; the new cache."""
        length = cache.past.keys.shape[2]
        x_B1D, cache = self.decoder.step(
            self.embedded(tokens_B[:, None], side="decoder", positions_BL=position[None, None]),
            cache,
            position=position,
            views=View(
                mask=Mask(causal=True, queries=Traits(positions=position[None])),
                bias=self.bias(length, side="decoder", position=position),
            ),
        )
        return self.token_scores(self.normed(x_B1D, side="decoder")).logits()[:, 0], cache

    def tokens(self, batch: Batch) -> jax.Array:
        encoder_BM, decoder_BL = self._segments(batch)
        return accounting.count(encoder_BM) + accounting.count(decoder_BL)

    def flops(self, batch: Batch) -> jax.Array:
        """The operations of a step, as `TermLoss.counted` has them.

        It counts matrix products only, two operations a multiply-add, backward twice forward,
        over tokens that are not padding and pairs of positions that the masks let through. It does
        not count what `remat` computes again.
        """
        encoder, decoder = self.encoder.layers, self.decoder.layers
        cross = decoder.cross_attention
        encoder_BM, decoder_BL = self._segments(batch)
        head = self.config.d_model * self.config.vocab_size
        per_input = accounting.matrix_size(encoder, cross.key, cross.value)
        per_target = accounting.matrix_size(decoder) - accounting.matrix_size(
            cross.key, cross.value
        )
        # Two products a pair: one with the keys, one with the values.
        per_pair = 2 * self.config.num_heads * self.config.d_kv
        encoder_pairs = self.encoder_pairs(encoder_BM)
        decoder_pairs = masks.visible_pairs(decoder_BL, decoder_BL, causal=True)
        decoder_pairs += masks.visible_pairs(decoder_BL, encoder_BM)
        pairs = encoder_pairs * self.encoder.num_layers + decoder_pairs * self.decoder.num_layers
        inputs, targets = accounting.count(encoder_BM), accounting.count(decoder_BL)
        return accounting.step_flops(
            per_input * inputs + (per_target + head) * targets + per_pair * pairs
        )

    def encoder_pairs(self, segments_BM: jax.Array) -> jax.Array:
        """How many pairs of a query and a key a layer of the encoder computes, float32 []."""
        return masks.visible_pairs(segments_BM, segments_BM)

    def _segments(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Each token's example, from 1; 0 is padding."""
        if "encoder_segment_ids" in batch:
            return batch["encoder_segment_ids"], batch["decoder_segment_ids"]
        inputs, targets = batch["encoder_input_tokens"], batch["decoder_target_tokens"]
        counts = batch.get("encoder_attention_mask", inputs != self.padding)
        return counts.astype(jnp.int32), (targets != self.padding).astype(jnp.int32)

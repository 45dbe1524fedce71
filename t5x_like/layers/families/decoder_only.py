"""The common base of GPT and a prefix language model: one stack that reads its own output.

Suffixes: B batch, L length, T cache length, D d_model, H heads, K d_kv, N layers, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

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
from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.view import View, Views, views_of
from t5x_like.layers.basics import embeddings
from t5x_like.layers.basics.dropout import subkeys
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.target_loss import TargetLoss
from t5x_like.layers.stacks.blocks import EncoderLayer
from t5x_like.layers.stacks.encoder import EncoderStack, with_last
from t5x_like.layers.stacks.stack import Body

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """The state that decoding keeps between positions."""

    past: KeysValues  # [N, B, T, H, K]
    starts: jax.Array  # int32 [B], the position of each row's first token; before it is padding

    def repeat(self, times: int) -> Cache:
        """Each row `times` times in a row, for several answers to a text: B * times rows."""
        past = jax.tree.map(lambda x: jnp.repeat(x, times, axis=1), self.past)
        return Cache(past, jnp.repeat(self.starts, times))

    def reorder(self, rows_B: jax.Array) -> Cache:
        """The cache where row b has written what `rows_B[b]` had; both answer the same text."""
        past = jax.tree.map(lambda x: x[:, rows_B], self.past)
        return dataclasses.replace(self, past=past)


class DecoderOnly(TargetLoss):
    """A stack whose queries see earlier keys; inside a prefix, all see each other.

    A batch holds int32 `decoder_input_tokens`, and for the loss `decoder_target_tokens` and float32
    `decoder_loss_weights`, [B, L] each; when rows are packed, `decoder_segment_ids` (0 is padding)
    and `decoder_positions`; and where prefixes are seen from both sides,
    `decoder_causal_attention`, 1 in a prefix (T5, figure 4). Rows are filled up at their end.
    Float32 `decoder_head_mask`, [B, N, H], multiplies the values of heads: 0 switches one off.
    For states, a batch may be an encoder's instead: `encoder_input_tokens`, `encoder_head_mask`.

    A subclass sets the attributes below, and may give the stack a bias, or other views, and a last
    norm.
    """

    stack: EncoderStack
    abilities: ClassVar[tuple[type, ...]] = (CountsFlops, GivesStates, ScoresTargets, Writes)
    reads_apart: ClassVar = False

    @property
    def padding(self) -> int | None:
        """The id that fills up rows; None where nothing needs it."""
        return None

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """The states of an encoder's batch, each of a token that sees those before it."""
        return self.hidden(batch, want=want)

    def embedded(
        self,
        tokens_BL: jax.Array,
        key: jax.Array | None = None,
        *,
        positions_BL: jax.Array | None = None,
    ) -> jax.Array:
        """The input of the first layer, [B, L, D].

        `positions_BL`, int32 [B, L] or [1, L], are the tokens' positions if not 0, 1, 2, ...
        """
        raise NotImplementedError

    def normed(self, x_BLD: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """The output of the stack, made from that of its last layer; the same by default."""
        return x_BLD

    @property
    def layers(self) -> EncoderStack:
        """The stack that reads a row: `stack`, unless a subclass has it elsewhere."""
        return self.stack

    def views(self, mask: Mask, positions_BL: jax.Array, *, bias: jax.Array | None = None) -> Views:
        """The view of all layers, or several in turn.

        Args:
          mask: what a whole row sees, or the query at one position of a cache.
          positions_BL: int32 [B|1, L], those of the queries in their texts.
          bias: what `bias` gives.
        """
        return View(mask=mask, bias=bias)

    def bias(self, length: int, *, position: jax.Array | None = None) -> jax.Array | None:
        """The attention bias, [1, H, L, L], or that of the query at `position`, [1, H, 1, L]."""
        return None

    def hidden(
        self,
        batch: Batch,
        key: jax.Array | None = None,
        *,
        want: Want = LAST,
    ) -> States:
        """The states of a batch."""
        first, stack, last = subkeys(key, 3)
        batch = _of_decoder(batch)
        tokens_BL = batch["decoder_input_tokens"]
        positions_BL = batch.get("decoder_positions")
        places_BL = embeddings.positions_in_row(tokens_BL) if positions_BL is None else positions_BL
        hidden = self.layers.encode(
            self.embedded(tokens_BL, first, positions_BL=positions_BL),
            views=self.views(_visible(batch), places_BL, bias=self.bias(tokens_BL.shape[1])),
            heads_BNH=batch.get("decoder_head_mask"),
            key=stack,
            want=want,
        )
        return with_last(hidden, self.normed(hidden.last, last))

    def prefill(self, batch: Batch, *, max_length: int) -> Cache:
        """Reads prompts, which end at the same position: shorter ones have padding before them.

        Args:
          batch: int32 `decoder_input_tokens` [B, L]; where prompts differ in length,
            `decoder_segment_ids` [B, L], 0 for padding and 1 for tokens; and where they are seen
            from both sides, `decoder_causal_attention` [B, L].
          max_length: T, the positions that the cache has room for.

        Returns:
          The cache; `decode_step` continues with the last token.

        Raises:
          ValueError: `max_length` exceeds the model's positions.
        """
        embeddings.check_length(max_length, max_positions=self.max_positions)
        tokens_BL = batch["decoder_input_tokens"]
        length = tokens_BL.shape[1]
        counts_BL = batch.get("decoder_segment_ids", jnp.ones_like(tokens_BL))
        starts = length - counts_BL.sum(axis=1, dtype=jnp.int32)
        positions_BL = jnp.maximum(jnp.arange(length) - starts[:, None], 0)

        def reading(view: View) -> Body:
            def body(layer: EncoderLayer, x_BLD: jax.Array, _: None) -> tuple:
                read_BLD = layer.placement.before(layer.attention_norm, x_BLD)
                memory = layer.attention.keys_values(read_BLD, rotary=view.rotary)
                return layer(x_BLD, view=view, key=None)[0], memory

            return body

        views = views_of(self.views(_visible(batch), positions_BL, bias=self.bias(length)))
        embedded_BLD = self.embedded(tokens_BL, positions_BL=positions_BL)
        _, past = self.layers([*map(reading, views)], embedded_BLD)
        room = [(0, 0), (0, 0), (0, max_length - length), (0, 0), (0, 0)]
        return Cache(jax.tree.map(lambda x: jnp.pad(x, room), past), starts)

    def decode_step(
        self, cache: Cache, tokens_B: jax.Array, position: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """Logits after the tokens at `position` (int32 []), float32 [B, V]; the new cache."""
        length = cache.past.keys.shape[2]
        mask = Mask(
            present=jnp.arange(length) >= cache.starts[:, None],
            causal=True,
            queries=Traits(positions=position[None]),
        )
        positions_B1 = position - cache.starts[:, None]
        x_B1D, past = self.layers.step(
            self.embedded(tokens_B[:, None], positions_BL=positions_B1),
            cache.past,
            position=position,
            views=self.views(mask, positions_B1, bias=self.bias(length, position=position)),
        )
        logits_B1V = self.token_scores(self.normed(x_B1D)).logits()
        return logits_B1V[:, 0], dataclasses.replace(cache, past=past)

    def tokens(self, batch: Batch) -> jax.Array:
        return accounting.count(segments(batch))

    def flops(self, batch: Batch) -> jax.Array:
        """Counts operations like an `EncoderDecoder`, with the logits of every token."""
        segments_BL = segments(batch)
        config, stack = self.config, self.layers
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


def _of_decoder(batch: Batch) -> Batch:
    """A decoder's batch; an encoder's gets its names, and padding at the end needs no mask."""
    if "decoder_input_tokens" in batch:
        return batch
    names = {"encoder_input_tokens", "encoder_head_mask"} & batch.keys()
    return {name.replace("encoder", "decoder"): batch[name] for name in names}


def _visible(batch: Batch) -> Mask:
    """The mask of self-attention."""
    prefix_BL = batch.get("decoder_causal_attention")
    traits = Traits(
        segments=batch.get("decoder_segment_ids"),
        prefix=None if prefix_BL is None else prefix_BL > 0,
    )
    return Mask(causal=True, queries=traits, keys=traits)


def segments(batch: Batch) -> jax.Array:
    """Each token's example, from 1; 0 is padding, which follows everything with a weight."""
    if "decoder_segment_ids" in batch:
        return batch["decoder_segment_ids"]
    scored_BL = (batch["decoder_loss_weights"] > 0).astype(jnp.int32)
    return jax.lax.cummax(scored_BL, axis=1, reverse=True)

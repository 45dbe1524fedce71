"""A stack of layers that read their own past and an encoder's output.

Suffixes: B batch, L target length, M input length, T cache length, D d_model, H heads, N layers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, States, Want
from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.kernel_choice import forming_probabilities
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.view import View, Views, views_of
from t5x_like.layers.basics.dropout import give_keys
from t5x_like.layers.stacks.blocks import DecoderLayer, Parts, insert
from t5x_like.layers.stacks.encoder import all_states, by_layer
from t5x_like.layers.stacks.stack import Body, Stack

if TYPE_CHECKING:
    from t5x_like.layers.stacks.transformer_config import Transformer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """The state that decoding keeps between positions."""

    past: KeysValues  # of the decoder's own positions, [N, B, T, H, K]
    memory: KeysValues  # of the encoder's output, computed once, [N, B, M, H, K]
    present: jax.Array  # [B, M], above 0 for the encoder's tokens

    def repeat(self, times: int) -> Cache:
        """Each row `times` times in a row, for several answers to a text: B * times rows."""
        both = (self.past, self.memory)
        past, memory = jax.tree.map(lambda x: jnp.repeat(x, times, axis=1), both)
        return Cache(past, memory, jnp.repeat(self.present, times, axis=0))

    def reorder(self, rows_B: jax.Array) -> Cache:
        """The cache where row b has written what `rows_B[b]` had; both answer the same text."""
        past = jax.tree.map(lambda x: x[:, rows_B], self.past)
        return dataclasses.replace(self, past=past)


class Heads(NamedTuple):
    """Float [B, N, H], factors of each head's values; None: nothing is multiplied."""

    of_self: jax.Array | None = None
    of_cross: jax.Array | None = None


ALL_HEADS = Heads()


class DecoderStack(Stack):
    """N decoder layers."""

    layers: DecoderLayer

    def decode(
        self,
        x_BLD: jax.Array,
        encoded_BMD: jax.Array,
        *,
        views: Views,
        cross: View,
        heads: Heads = ALL_HEADS,
        key: jax.Array | None = None,
        want: Want = LAST,
    ) -> States:
        """Runs the layers.

        Args:
          x_BLD: what the first layer reads.
          encoded_BMD: what the encoder gives.
          views: those of self-attention: one for all layers, or several in turn.
          cross: that of cross-attention.
          heads: the factors of heads.
          key: for dropout.
          want: what to return.

        Raises:
          ValueError: attention is wanted of a kernel that forms no probabilities.
        """

        def reading(view: View) -> Body:
            def body(layer: DecoderLayer, x_BLD: jax.Array, of_layer: tuple) -> tuple:
                key, own_BH, cross_BH = of_layer
                give_keys(layer, key)
                x_BLD, attention = layer(
                    x_BLD,
                    encoded_BMD,
                    view=view.with_heads(own_BH),
                    cross=cross.with_heads(cross_BH),
                    key=key,
                )
                probabilities = attention if want.attention else (None, None)
                return x_BLD, (x_BLD if want.states else None, *probabilities)

            return body

        with forming_probabilities(want.attention):
            last, (states, attention, to_encoder) = self(
                [*map(reading, views_of(views))],
                x_BLD,
                (self.keys(key), by_layer(heads.of_self), by_layer(heads.of_cross)),
            )
        states = all_states(x_BLD, states, attention, want=want)
        return States(last, states, attention, to_encoder)

    def init_cache(
        self, encoded_BMD: jax.Array, *, present_BM: jax.Array, max_length: int
    ) -> Cache:
        """An empty cache for `max_length` positions; projects the encoder's output, once.

        `present_BM` is above 0 for the encoder's tokens.
        """

        def body(layer: DecoderLayer, encoded_BMD: jax.Array, _: None) -> tuple:
            return encoded_BMD, layer.cross_attention.keys_values(encoded_BMD)

        _, memory = self(body, encoded_BMD)
        empty = jax.tree.map(
            lambda x: jnp.zeros((*x.shape[:2], max_length, *x.shape[3:]), x.dtype), memory
        )
        return Cache(empty, memory, present_BM)

    def step(
        self, x_B1D: jax.Array, cache: Cache, *, position: jax.Array, views: Views
    ) -> tuple[jax.Array, Cache]:
        """All layers at one position (int32 [], from 0), and the cache that includes it.

        `views` are those of one query and of as many keys as the cache has room for.
        """
        cross = View(mask=Mask(present=cache.present))

        def reading(view: View) -> Body:
            def body(layer: DecoderLayer, x_B1D: jax.Array, layer_cache: tuple) -> tuple:
                return layer.step(x_B1D, *layer_cache, position=position, view=view, cross=cross)

            return body

        layer_caches = (cache.past, cache.memory)
        x_B1D, new = self([*map(reading, views_of(views))], x_B1D, layer_caches)
        past = insert(cache.past, new, position=position, axis=2)
        return x_B1D, dataclasses.replace(cache, past=past)


def decoder_stack(
    config: Transformer, made_of: Parts, *, num_layers: int, rngs: nnx.Rngs
) -> DecoderStack:
    """A stack of layers with these parts, run as `config` says."""
    return DecoderStack(
        lambda rngs: DecoderLayer(made_of, rngs=rngs),
        num_layers,
        rngs=rngs,
        unroll=config.scan_unroll,
        remat=config.remat,
    )

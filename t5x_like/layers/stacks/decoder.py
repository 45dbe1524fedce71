"""A stack of layers that read their own past and an encoder's output.

Suffixes: B batch, L target length, M input length, T cache length, D d_model, H heads, N layers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, States, Want
from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.kernel_choice import forming_probabilities
from t5x_like.layers.stacks.blocks import DecoderLayer, Parts, insert
from t5x_like.layers.stacks.encoder import all_states
from t5x_like.layers.stacks.stack import Stack

if TYPE_CHECKING:
    from t5x_like.layers.stacks.transformer_config import Transformer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """What decoding keeps between positions."""

    past: KeysValues  # of the decoder's own positions, [N, B, T, H, K]
    memory: KeysValues  # of the encoder's output, computed once, [N, B, M, H, K]
    memory_mask: jax.Array  # bool [B, 1, 1, M]

    def repeat(self, times: int) -> Cache:
        """Each row `times` times in a row, for several answers to a text: B * times rows."""
        both = (self.past, self.memory)
        past, memory = jax.tree.map(lambda x: jnp.repeat(x, times, axis=1), both)
        return Cache(past, memory, jnp.repeat(self.memory_mask, times, axis=0))

    def reorder(self, rows_B: jax.Array) -> Cache:
        """The cache where row b has written what `rows_B[b]` had; both answer the same text."""
        past = jax.tree.map(lambda x: x[:, rows_B], self.past)
        return dataclasses.replace(self, past=past)


class DecoderStack(Stack):
    """N decoder layers."""

    def decode(
        self,
        x_BLD: jax.Array,
        encoded_BMD: jax.Array,
        *,
        masks: tuple[jax.Array, jax.Array],
        bias: jax.Array | None = None,
        key: jax.Array | None = None,
        want: Want = LAST,
    ) -> States:
        """Runs the layers; `masks` are those of self-attention and of cross-attention.

        Raises:
          ValueError: attention is wanted of a kernel that forms no probabilities.
        """
        self_mask, cross_mask = masks

        def body(layer: DecoderLayer, x_BLD: jax.Array, key: jax.Array | None) -> tuple:
            x_BLD, attention = layer(
                x_BLD, encoded_BMD, self_mask=self_mask, cross_mask=cross_mask, bias=bias, key=key
            )
            probabilities = attention if want.attention else (None, None)
            return x_BLD, (x_BLD if want.states else None, *probabilities)

        with forming_probabilities(want.attention):
            last, (states, attention, cross) = self(body, x_BLD, self.keys(key))
        states = all_states(x_BLD, states, attention, want=want)
        return States(last, states, attention, cross)

    def init_cache(
        self, encoded_BMD: jax.Array, *, memory_mask: jax.Array, max_length: int
    ) -> Cache:
        """An empty cache for `max_length` positions; projects the encoder's output, once."""

        def body(layer: DecoderLayer, encoded_BMD: jax.Array, _: None) -> tuple:
            return encoded_BMD, layer.cross_attention.keys_values(encoded_BMD)

        _, memory = self(body, encoded_BMD)
        empty = jax.tree.map(
            lambda x: jnp.zeros((*x.shape[:2], max_length, *x.shape[3:]), x.dtype), memory
        )
        return Cache(empty, memory, memory_mask)

    def step(
        self, x_B1D: jax.Array, cache: Cache, *, position: jax.Array, bias: jax.Array | None
    ) -> tuple[jax.Array, Cache]:
        """All layers at one position (int32 [], from 0), and the cache that includes it."""

        def body(layer: DecoderLayer, x_B1D: jax.Array, layer_cache: tuple) -> tuple:
            return layer.step(
                x_B1D, *layer_cache, position=position, memory_mask=cache.memory_mask, bias=bias
            )

        x_B1D, new = self(body, x_B1D, (cache.past, cache.memory))
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

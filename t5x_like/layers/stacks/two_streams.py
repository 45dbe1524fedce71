"""XLNet's layers: the states of a row, and those that predict some of its positions.

Suffixes: B batch, L length, P predicted positions, S = L + P states, M memory, T = M + L keys,
Q queries (L or P), D d_model, H heads, N layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, States, Want
from t5x_like.core.partitioning import constrain
from t5x_like.layers.attention.attention_kernels import KeysValues
from t5x_like.layers.attention.kernel_choice import forming_probabilities
from t5x_like.layers.attention.relative_attention import (
    Biases,
    PositionKeys,
    RelativeAttention,
    RelativeView,
)
from t5x_like.layers.basics.dropout import NO_DROPOUT, Dropouts, give_keys, residual, subkeys
from t5x_like.layers.basics.mlp import Mlp
from t5x_like.layers.stacks.blocks import Norm, insert
from t5x_like.layers.stacks.encoder import all_states, by_layer
from t5x_like.layers.stacks.stack import Stack

Streams = Sequence[RelativeView]
"""The view of the row's own states; then, where something is predicted, that of the states at
predicted positions. Both have the same relative positions and biases."""


def num_predicted(views: Streams) -> int:
    """P, the states of the second stream; 0 where there is none."""
    asking = views[-1].asking
    return 0 if asking is None else asking.shape[1]


class TwoStreams(NamedTuple):
    """The output of the layers: states of the row, states at predicted positions, and the memory.

    `query` is None where nothing is predicted. `memory` ([B, N, M, D], no gradient passes) is None
    where none was given. `attention` of both streams covers memory and row: [N, B, H, Q, T].
    """

    content: States
    query: States | None
    memory: jax.Array | None


class TwoStreamLayer(nnx.Module):
    """Attention of both streams to the content, and a feed-forward part; norms after each.

    The streams share their weights. Their states lie side by side, [B, S, D]; only what they see is
    computed apart (XLNet, section 2.3).
    """

    def __init__(
        self,
        *,
        attention: Callable[[nnx.Rngs], RelativeAttention],
        biases: Callable[[nnx.Rngs], Biases] | None,
        mlp: Callable[[nnx.Rngs], Mlp],
        norm: Callable[[nnx.Rngs], Norm],
        dropouts: Dropouts,
        rngs: nnx.Rngs,
    ) -> None:
        self.attention = attention(rngs)
        self.biases = biases and biases(rngs)
        self.attention_norm = norm(rngs)
        self.mlp = mlp(rngs)
        self.mlp_norm = norm(rngs)
        self.dropouts = dropouts

    def __call__(
        self,
        x_BSD: jax.Array,
        memory_BMD: jax.Array | None,
        *,
        views: Streams,
        key: jax.Array | None,
    ) -> tuple[jax.Array, tuple[jax.Array | None, ...]]:
        """[B, S, D] and the probabilities of each stream."""
        first, *keys = subkeys(key, 4)
        y_BSD, probabilities = self._attended(x_BSD, memory_BMD, views=views, key=first)
        return self._feed_forward(x_BSD, y_BSD, keys), probabilities

    def step(
        self,
        x_B2D: jax.Array,
        past: KeysValues,
        *,
        position: jax.Array,
        position_keys: PositionKeys,
        view: RelativeView,
    ) -> tuple[jax.Array, KeysValues]:
        """The layer at the token at `position` (int32 []) and at the predicted one after it.

        Args:
          x_B2D: the states of both.
          past: keys and values of T positions, [B, T, H, K] each; those before `position` are
            filled.
          position: that of the token.
          position_keys: those of the layer, 2 T for each row.
          view: that of both: 2 queries and T keys.

        Returns:
          [B, 2, D], and the keys and values of the token, [B, 1, H, K] each.
        """
        new = self.attention.keys_values(x_B2D[:, :1])
        seen = insert(past, new, position=position, axis=1)
        looked = self.attention.look(
            self.attention.queries(x_B2D),
            seen,
            position_keys=position_keys,
            biases=self._query_biases(view),
            view=view,
            dropouts=NO_DROPOUT,
            key=None,
        )
        y_B2D = self.attention.project(looked.values)
        return self._feed_forward(x_B2D, y_B2D, subkeys(None, 3)), new

    def _feed_forward(
        self, x_BSD: jax.Array, y_BSD: jax.Array, keys: Sequence[jax.Array | None]
    ) -> jax.Array:
        """The rest of the layer after the attention, whose result is `y_BSD`."""
        x_BSD = residual(x_BSD, y_BSD, dropouts=self.dropouts, key=keys[0])
        x_BSD = self.attention_norm(x_BSD)
        y_BSD = self.mlp(x_BSD, dropouts=self.dropouts, key=keys[1])
        x_BSD = residual(x_BSD, y_BSD, dropouts=self.dropouts, key=keys[2])
        return self.mlp_norm(x_BSD)

    def _query_biases(self, view: RelativeView) -> Biases:
        biases = self.biases or view.biases
        if biases is None:
            raise ValueError("neither the layer nor the model has query biases")
        return biases

    def _attended(
        self,
        x_BSD: jax.Array,
        memory_BMD: jax.Array | None,
        *,
        views: Streams,
        key: jax.Array | None,
    ) -> tuple[jax.Array, tuple[jax.Array | None, ...]]:
        attention, content = self.attention, views[0]
        biases = self._query_biases(content)
        length = x_BSD.shape[1] - num_predicted(views)
        seen_BTD = x_BSD[:, :length]
        if memory_BMD is not None:
            seen_BTD = jnp.concatenate([memory_BMD.astype(seen_BTD.dtype), seen_BTD], axis=1)
        keys_values = attention.keys_values(seen_BTD)
        position_keys = attention.position_keys(content.relative, x_BSD.shape[0])
        q_BSJ = attention.queries(x_BSD)
        streams = [
            attention.look(
                q_BSJ,
                keys_values,
                part=part,
                position_keys=position_keys,
                biases=biases,
                view=view,
                dropouts=self.dropouts,
                key=stream_key,
            )
            for part, view, stream_key in zip(
                (slice(length), slice(length, None)),
                views,
                subkeys(key, len(views)),
                strict=False,
            )
        ]
        y_BSJ = jnp.concatenate([stream.values for stream in streams], axis=1)
        return attention.project(y_BSJ), tuple(stream.probabilities for stream in streams)


class TwoStreamStack(Stack):
    """N layers of two streams, with a memory of what each layer read before."""

    layers: TwoStreamLayer

    def read(
        self,
        x_BSD: jax.Array,
        memory_BNMD: jax.Array | None = None,
        *,
        views: Streams,
        reuse_len: int,
        heads_BNH: jax.Array | None = None,
        key: jax.Array | None = None,
        want: Want = LAST,
    ) -> TwoStreams:
        """Runs the layers.

        Args:
          x_BSD: the embedded row, then the predicted positions.
          memory_BNMD: what each layer read before; new positions push out the first ones.
          views: those of the streams.
          reuse_len: how many positions of the row are remembered, starting at its first.
          heads_BNH: as in `EncoderStack.encode`, for both streams.
          key: for dropout.
          want: what to return of each stream.

        Raises:
          ValueError: attention is wanted of a kernel that forms no probabilities.
        """

        def body(layer: TwoStreamLayer, x_BSD: jax.Array, xs: tuple) -> tuple:
            key, memory_BMD, heads_BH = xs
            give_keys(layer, key)
            new_BMD = None
            if memory_BMD is not None:
                new_BMD = next_memory(memory_BMD, x_BSD[:, :reuse_len])
            streams = [view.with_heads(heads_BH) for view in views]
            x_BSD, p = layer(x_BSD, memory_BMD, views=streams, key=key)
            states = x_BSD if want.states else None
            return x_BSD, (states, p if want.attention else None, new_BMD)

        memory = None if memory_BNMD is None else memory_BNMD.swapaxes(0, 1)
        with forming_probabilities(want.attention):
            last, (states, attention, new) = self(
                body, x_BSD, (self.keys(key), memory, by_layer(heads_BNH))
            )
        formed = attention and attention[0]  # one kernel for both streams
        states = all_states(x_BSD, states, formed, want=want)
        length = x_BSD.shape[1] - num_predicted(views)
        streams = [
            States(
                last[:, part],
                None if states is None else states[:, :, part],
                None if attention is None else attention[i],
            )
            for i, part in enumerate((slice(length), slice(length, None))[: len(views)])
        ]
        return TwoStreams(
            content=streams[0],
            query=streams[1] if len(streams) > 1 else None,
            memory=None if new is None else new.swapaxes(0, 1),
        )


def next_memory(memory_BMD: jax.Array, x_BLD: jax.Array) -> jax.Array:
    """The last M of the memory followed by new states; no gradient passes (section 2.5)."""
    x_BLD = x_BLD.astype(memory_BMD.dtype)
    both = jnp.concatenate([memory_BMD, x_BLD], axis=1)[:, x_BLD.shape[1] :]
    return constrain(jax.lax.stop_gradient(both), "batch", None, "embed_act")

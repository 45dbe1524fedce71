"""The input of a first layer: tokens, learned positions and types, summed, normed, dropped out.

Suffixes: B batch, L length, E width of the embeddings, P positions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.core.partitioning import constrain
from t5x_like.layers.basics.depth import below
from t5x_like.layers.basics.dropout import Dropouts, dropout, dropout_hidden
from t5x_like.layers.basics.modules import Embedding, Init, LayerNorm, param


def positions_in_row(tokens_BL: jax.Array) -> jax.Array:
    """0, 1, 2, ... regardless of padding: int32 [1, L]."""
    return jnp.arange(tokens_BL.shape[1], dtype=jnp.int32)[None]


def positions_of_tokens(counts_BL: jax.Array, *, pad_id: int) -> jax.Array:
    """pad_id + 1, + 2, ... for tokens that count, pad_id for the others (fairseq)."""
    counts_BL = (counts_BL > 0).astype(jnp.int32)
    return jnp.cumsum(counts_BL, axis=1) * counts_BL + pad_id


def check_length(length: int, *, max_positions: int | None) -> None:
    """Refuses rows of `length` tokens where there are fewer positions; None: no table limits them.

    Raises:
      ValueError: the rows are too long; says how many tokens fit.
    """
    if max_positions is not None and length > max_positions:
        raise ValueError(
            f"rows of {length} tokens do not fit max_positions: at most {max_positions} do"
        )


class InputEmbedding(nnx.Module):
    """Token + position (+ type) vectors -> layer norm (where there is one) -> dropout.

    Its width E may be less than the model's. There are `max_positions` rows of positions, and
    `vocab_size` in what `table` makes of tokens.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        *,
        max_positions: int,
        type_vocab_size: int,
        init: Init,
        rngs: nnx.Rngs,
        norm: LayerNorm | None,
        dropouts: Dropouts,
        table: Callable[..., Any] = Embedding,
    ) -> None:
        self.tokens: Any = table(vocab_size, width, init=init, rngs=rngs)
        rows = functools.partial(param, init, rngs=rngs, multiplied=False)
        self.positions = rows((max_positions, width), axes=("positions", "embed"))
        types = (type_vocab_size, width)
        self.types = rows(types, axes=(None, "embed")) if type_vocab_size else None
        self.norm = norm
        self.dropouts = dropouts
        below(self)

    def __call__(
        self,
        tokens_BL: jax.Array,
        positions_BL: jax.Array,
        types_BL: jax.Array | None = None,
        *,
        dtype: DTypeLike,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """[B, L, E] in `dtype`.

        `positions_BL`, int32 [B, L] or [1, L], are rows of the table; beyond it vectors are NaN.
        Where types are None, all are 0.
        """
        x_BLE = self.tokens(tokens_BL, dtype=dtype)
        x_BLE += _position_vectors(self.positions[...], positions_BL).astype(dtype)
        if self.types is not None:
            x_BLE += _type_vectors(self.types[...], types_BL).astype(dtype)
        if self.norm is not None:
            x_BLE = self.norm(x_BLE)
        x_BLE = dropout_hidden(x_BLE, key, dropouts=self.dropouts)
        return constrain(x_BLE, "batch", "length", "embed_act")


class NormedTokens(nnx.Module):
    """Token vectors -> layer norm -> dropout: nothing says where a token is."""

    def __init__(
        self,
        vocab_size: int,
        width: int,
        *,
        init: Init,
        norm: LayerNorm,
        dropout_rate: float,
        rngs: nnx.Rngs,
    ) -> None:
        self.tokens = Embedding(vocab_size, width, init=init, rngs=rngs)
        self.norm = norm
        self.dropout_rate = dropout_rate
        below(self)

    def __call__(self, tokens_BL: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """[B, L, E] in the norm's dtype."""
        x_BLE = self.norm(self.tokens(tokens_BL, dtype=self.norm.dtype))
        x_BLE = dropout(x_BLE, key, rate=self.dropout_rate)
        return constrain(x_BLE, "batch", "length", "embed_act")


class PositionedInput(nnx.Module):
    """Token vectors, from a shared table, + position vectors -> layer norm -> dropout.

    `rows` is the number of positions.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        *,
        init: Init,
        norm: LayerNorm,
        dropouts: Dropouts,
        rngs: nnx.Rngs,
    ) -> None:
        shape, axes = (rows, width), ("positions", "embed")
        self.positions = param(init, shape, axes=axes, multiplied=False, rngs=rngs)
        self.norm = norm
        self.dropouts = dropouts
        below(self)

    def __call__(
        self, x_BLE: jax.Array, positions_BL: jax.Array, key: jax.Array | None = None
    ) -> jax.Array:
        """[B, L, E]; `positions_BL`, int32 [B, L] or [1, L], are rows of the table, NaN beyond."""
        x_BLE += _position_vectors(self.positions[...], positions_BL).astype(x_BLE.dtype)
        x_BLE = dropout_hidden(self.norm(x_BLE), key, dropouts=self.dropouts)
        return constrain(x_BLE, "batch", "length", "embed_act")


def _position_vectors(table: jax.Array, positions_BL: jax.Array) -> jax.Array:
    """NaN beyond the table: positions of packed rows are data, and a wrong one must show."""
    return constrain(table, None, "embed_act").at[positions_BL].get(mode="fill", fill_value=jnp.nan)


def _type_vectors(types: jax.Array, types_BL: jax.Array | None) -> jax.Array:
    """Rows of a small table [T, E], by a product: the gradient of a lookup is a scatter."""
    if types_BL is None:
        return types[0]
    return jax.nn.one_hot(types_BL, types.shape[0], dtype=types.dtype) @ types

"""Greedy decoding with a key/value cache.

Suffixes: B batch, M input length, T output length.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from t5x_like.core.protocols import Decodable


@functools.partial(jax.jit, static_argnames=("max_length", "vocab_size", "start", "eos", "pad"))
def greedy(
    model: Decodable,
    encoder_tokens_BM: jax.Array,
    *,
    max_length: int,
    vocab_size: int | None = None,
    start: int = 0,
    eos: int = 1,
    pad: int = 0,
) -> jax.Array:
    """The likeliest token at each position: int32 [B, max_length], `pad` after the first `eos`.

    Stops when every row has ended. Ids from `vocab_size` on, which are rows of the table without a
    token, are never chosen. The decoder reads `start` first.
    """
    batch = encoder_tokens_BM.shape[0]
    cache = model.init_cache(
        model.encode(encoder_tokens_BM).last, encoder_tokens_BM, max_length=max_length
    )
    first = (
        jnp.zeros((), jnp.int32),
        jnp.full((batch,), start, jnp.int32),
        jnp.zeros((batch,), bool),
        jnp.full((batch, max_length), pad, jnp.int32),
        cache,
    )

    def unfinished(state: tuple) -> jax.Array:
        position, _, done_B, *_ = state
        return (position < max_length) & ~done_B.all()

    def step(state: tuple) -> tuple:
        position, tokens_B, done_B, out_BT, cache = state
        logits_BV, cache = model.decode_step(cache, tokens_B, position)
        tokens_B = logits_BV[:, :vocab_size].argmax(axis=-1).astype(jnp.int32)
        tokens_B = jnp.where(done_B, pad, tokens_B)
        out_BT = jax.lax.dynamic_update_slice_in_dim(out_BT, tokens_B[:, None], position, axis=1)
        return position + 1, tokens_B, done_B | (tokens_B == eos), out_BT, cache

    return jax.lax.while_loop(unfinished, step, first)[3]

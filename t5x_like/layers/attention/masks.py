"""Attention masks: bool, true where a query may look at a key, [B|1, 1, L|1, M].

Suffixes: B batch, L queries, M keys.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def not_padding(counts_BM: jax.Array) -> jax.Array:
    """[B, 1, 1, M]: every query sees the keys that count, those above 0."""
    return (counts_BM > 0)[:, None, None, :]


def causal(length: int) -> jax.Array:
    """[1, 1, L, L]: a query sees itself and the keys before it."""
    return jnp.tril(jnp.ones((1, 1, length, length), bool))


def same_segment(queries_BL: jax.Array, keys_BM: jax.Array) -> jax.Array:
    """[B, 1, L, M]: a query sees the keys with its segment id (packed rows)."""
    return (queries_BL[:, :, None] == keys_BM[:, None, :])[:, None]


def visible_pairs(queries_BL: jax.Array, keys_BM: jax.Array, *, causal: bool = False) -> jax.Array:
    """How many (query, key) pairs of equal, nonzero segment id there are: float32 [].

    With `causal`, only those whose key is not after the query.
    """
    pairs_BLM = (queries_BL[:, :, None] == keys_BM[:, None, :]) & (keys_BM > 0)[:, None, :]
    if causal:
        pairs_BLM = jnp.tril(pairs_BLM)
    return pairs_BLM.sum(axis=(1, 2)).astype(jnp.float32).sum()

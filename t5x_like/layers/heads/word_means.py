"""The mean of what a head says of a word's tokens.

A head of tokens is linear: the mean of its logits is what it says of the mean of the states.
Suffixes: B batch, L length, C classes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def of_words(logits_BLC: jax.Array, words_BL: jax.Array) -> jax.Array:
    """Logits in which each token of a word has the mean over the word's tokens.

    Args:
      logits_BLC: float32 [B, L, C].
      words_BL: int32 [B, L], the number of each token's word in its row, from 1; 0 for none, whose
        logits are left as they are.

    Returns:
      float32 [B, L, C].
    """

    def of_row(logits_LC: jax.Array, words_L: jax.Array) -> jax.Array:
        sums = jax.ops.segment_sum(logits_LC, words_L, num_segments=len(words_L) + 1)
        tokens = jax.ops.segment_sum(jnp.ones_like(words_L), words_L, len(words_L) + 1)
        return (sums / jnp.maximum(tokens, 1)[:, None])[words_L]

    means_BLC = jax.vmap(of_row)(logits_BLC, words_BL)
    return jnp.where(words_BL[..., None] > 0, means_BLC, logits_BLC)

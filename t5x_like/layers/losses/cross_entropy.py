"""Cross entropy of large vocabularies, with z-loss and label smoothing, as sums over tokens.

Suffixes: B batch, L length, V vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from t5x_like.layers.basics.token_scores import TokenScores, reductions


class TokenSums(NamedTuple):
    """Sums over weighted tokens, float32 []. Divide them once, at the end.

    `nll` sums -log p(target): it is `cross_entropy` without label smoothing.
    """

    cross_entropy: jax.Array
    nll: jax.Array
    squared_log_z: jax.Array
    correct: jax.Array


def token_sums(
    scores: jax.Array | TokenScores,
    targets_BL: jax.Array,
    *,
    weights_BL: jax.Array,
    label_smoothing: float = 0.0,
) -> TokenSums:
    """Sums of -log p(target), of the square of log Z and of right predictions.

    Label smoothing e gives 1 - e to the target and e / (V - 1) to each other id, and subtracts the
    entropy of that distribution, so that the least value is 0 (T5X). A target that ties for the
    largest logit counts as right. `scores` are logits, float [B, L, V], or what makes them.
    """
    if isinstance(scores, TokenScores):
        size, reduced = len(scores.table), scores.reductions(targets_BL)
    else:
        size, reduced = scores.shape[-1], reductions(scores.astype(jnp.float32), targets_BL)
    log_z_BL, target_BL, top_BL, all_BL = reduced
    nll_BL = log_z_BL - target_BL
    nll = cross_entropy = jnp.sum(nll_BL * weights_BL)
    if label_smoothing:
        on, off = 1.0 - label_smoothing, label_smoothing / (size - 1)
        entropy = -(on * math.log(on) + (size - 1) * off * math.log(off))
        smoothed_BL = log_z_BL - on * target_BL - off * (all_BL - target_BL) - entropy
        cross_entropy = jnp.sum(smoothed_BL * weights_BL)
    return TokenSums(
        cross_entropy=cross_entropy,
        nll=nll,
        squared_log_z=jnp.sum(jnp.square(log_z_BL) * weights_BL),
        correct=jnp.sum((target_BL >= top_BL) * weights_BL),
    )

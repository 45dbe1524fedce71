"""Cross entropy of large vocabularies, with z-loss and label smoothing, as sums over tokens.

Suffixes: B batch, L length, V vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp


class TokenSums(NamedTuple):
    """Sums over weighted tokens, float32 []. Divide them once, at the end.

    `nll` sums -log p(target): it is `cross_entropy` without label smoothing.
    """

    cross_entropy: jax.Array
    nll: jax.Array
    squared_log_z: jax.Array
    correct: jax.Array


def token_sums(
    logits_BLV: jax.Array,
    targets_BL: jax.Array,
    *,
    weights_BL: jax.Array,
    label_smoothing: float = 0.0,
) -> TokenSums:
    """Sums of -log p(target), of the square of log Z and of right predictions.

    Label smoothing e gives 1 - e to the target and e / (V - 1) to each other id, and subtracts the
    entropy of that distribution, so that the least value is 0 (T5X). A target that ties for the
    largest logit counts as right.
    """
    logits_BLV = logits_BLV.astype(jnp.float32)
    log_z_BL, target_BL, top_BL = reductions(logits_BLV, targets_BL)
    nll_BL = log_z_BL - target_BL
    nll = cross_entropy = jnp.sum(nll_BL * weights_BL)
    if label_smoothing:
        size = logits_BLV.shape[-1]
        on, off = 1.0 - label_smoothing, label_smoothing / (size - 1)
        entropy = -(on * math.log(on) + (size - 1) * off * math.log(off))
        all_BL = logits_BLV.sum(axis=-1)
        smoothed_BL = log_z_BL - on * target_BL - off * (all_BL - target_BL) - entropy
        cross_entropy = jnp.sum(smoothed_BL * weights_BL)
    return TokenSums(
        cross_entropy=cross_entropy,
        nll=nll,
        squared_log_z=jnp.sum(jnp.square(log_z_BL) * weights_BL),
        correct=jnp.sum((target_BL >= top_BL) * weights_BL),
    )


@jax.custom_vjp
def reductions(
    logits_BLV: jax.Array, targets_BL: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log Z, the target's logit and the largest logit (which passes no gradient), each [B, L].

    Its own derivative keeps only the logits for the backward pass and sweeps over them once,
    without a scatter; automatic derivatives would store another array of the size of the logits.
    """
    top_BL = logits_BLV.max(axis=-1)
    log_z_BL = top_BL + jnp.log(jnp.exp(logits_BLV - top_BL[..., None]).sum(axis=-1))
    target_BL = jnp.take_along_axis(logits_BLV, targets_BL[..., None], axis=-1)[..., 0]
    return log_z_BL, target_BL, top_BL


def _reduced_fwd(logits_BLV: jax.Array, targets_BL: jax.Array) -> tuple:
    out = reductions(logits_BLV, targets_BL)
    return out, (logits_BLV, targets_BL, out[0])


def _reduced_bwd(saved: tuple, cotangents: tuple) -> tuple[jax.Array, None]:
    logits_BLV, targets_BL, log_z_BL = saved
    g_log_z_BL, g_target_BL, _ = cotangents
    p_BLV = jnp.exp(logits_BLV - log_z_BL[..., None])
    is_target_BLV = targets_BL[..., None] == jnp.arange(logits_BLV.shape[-1])
    return (
        g_log_z_BL[..., None] * p_BLV + jnp.where(is_target_BLV, g_target_BL[..., None], 0.0),
        None,
    )


reductions.defvjp(_reduced_fwd, _reduced_bwd)

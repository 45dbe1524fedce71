"""All-Tokens MLM: predicts a token, or copies the one that is read (ELECTRA, section 3.5).

Suffixes: B batch, L length, V vocabulary.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from t5x_like.layers.basics.token_scores import reductions


def copied_or_predicted(
    logits_BLV: jax.Array, *, gate_BL: jax.Array, read_BL: jax.Array, targets_BL: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """-log p of the targets, float32 [B, L], and whether no token is likelier, bool [B, L].

    With c = sigmoid(gate), p is c [it is the token read] + (1 - c) softmax(logits).
    """
    log_z_BL, target_BL, top_BL, _ = reductions(logits_BLV, targets_BL)
    log_copy_BL = jax.nn.log_sigmoid(gate_BL)
    scale_BL = jax.nn.log_sigmoid(-gate_BL) - log_z_BL
    read_logit_BL = jnp.take_along_axis(logits_BLV, read_BL[..., None], axis=-1)[..., 0]

    def with_copy(logit_BL: jax.Array) -> jax.Array:
        return jnp.logaddexp(log_copy_BL, scale_BL + logit_BL)

    is_read_BL = read_BL == targets_BL
    log_p_BL = jnp.where(is_read_BL, with_copy(target_BL), scale_BL + target_BL)
    best_BL = jnp.maximum(with_copy(read_logit_BL), scale_BL + top_BL)
    return -log_p_BL, log_p_BL >= best_BL

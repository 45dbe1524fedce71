"""The distance of two answers to the same text, each with other units dropped (R-Drop).

Suffix: C classes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def divergence(log_p: jax.Array, log_q: jax.Array) -> jax.Array:
    """The mean of KL(p || q) and KL(q || p) over classes (Liang et al., 2021, section 2).

    Args:
      log_p, log_q: the log of the probabilities of classes, float32 [..., C].

    Returns:
      Float32 [...], in nats.
    """
    return 0.5 * ((jnp.exp(log_p) - jnp.exp(log_q)) * (log_p - log_q)).sum(axis=-1)

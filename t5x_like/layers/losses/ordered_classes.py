"""Ordered classes as binary decisions: of a text of at least class r, whether its class is above r.

The chance to be above a class is the product of the chances of all decisions up to it. So it falls
from class to class, whatever the logits are, and all answers are consistent (CORN: Shi, Cao and
Raschka, 2021, section 3).

Suffixes: B batch, C classes, R = C - 1 decisions.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.label_losses import Metrics, declares


def log_probabilities(logits_BR: jax.Array) -> jax.Array:
    """The log of the probability of each class: float32 [B, C]."""
    logits_BR = logits_BR.astype(jnp.float32)
    log_reached_BR = jnp.cumsum(jax.nn.log_sigmoid(logits_BR), axis=-1)
    log_stays_BR = jax.nn.log_sigmoid(-logits_BR)
    ends = ((0, 0), (1, 0)), ((0, 0), (0, 1))
    return jnp.pad(log_reached_BR, ends[0]) + jnp.pad(log_stays_BR, ends[1])


def medians(log_p_BC: jax.Array) -> jax.Array:
    """The first class that is as likely as not to be reached or stayed below, int32 [B].

    It is the number of classes that a text is above with a chance of more than 1/2 (section 3).
    """
    below_BR = jnp.cumsum(jnp.exp(log_p_BC), axis=-1)[:, :-1]
    return (below_BR < 0.5).sum(axis=-1).astype(jnp.int32)


@declares("ordered")
def ordered(logits_BR: jax.Array, batch: Any, weights_B: jax.Array) -> tuple[Term, Metrics]:
    """-log p of `labels`, int32 [B], as a mean over rows.

    It is the sum of the binary cross entropies of a row's decisions. The paper divides their sum by
    the number of all decisions; here a row counts the same whatever its class is.
    """
    log_p_BC = log_probabilities(logits_BR)
    labels_B = jnp.maximum(batch["labels"], 0)
    nll_B = -jnp.take_along_axis(log_p_BC, labels_B[:, None], axis=-1)[:, 0]
    right_B = medians(log_p_BC) == labels_B
    weight = weights_B.sum()
    term = Term((nll_B * weights_B).sum(), weight)
    return term, {"accuracy": ((right_B * weights_B).sum(), weight)}

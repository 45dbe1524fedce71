"""Losses of tasks: from a head's logits and a batch's labels to a term and metrics.

Suffixes: B batch, L length, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from t5x_like.layers.accounting import Term
from t5x_like.layers.losses import token_sums

Metrics = Mapping[str, tuple[jax.Array, jax.Array]]
Task = Callable[[jax.Array, Any], tuple[Term, Metrics]]
"""(logits, batch) -> the term of the loss, and metrics beside it."""


def classes(logits_BC: jax.Array, batch: Any) -> tuple[Term, Metrics]:
    """Cross entropy of `labels`, int32 [B], as a mean over rows."""
    return _cross_entropy(logits_BC[:, None], batch["labels"][:, None])


def pairs(logits_BC: jax.Array, batch: Any) -> tuple[Term, Metrics]:
    """As `classes`, of pairs of sentences: 0 where they follow each other (BERT, section 3.1)."""
    return classes(logits_BC, batch)


def numbers(logits_BC: jax.Array, batch: Any) -> tuple[Term, Metrics]:
    """Squared error of `labels`, float32 [B], as a mean over rows (STS-B)."""
    error_B = jnp.square(logits_BC[:, 0] - batch["labels"])
    return Term(error_B.sum(), jnp.float32(error_B.size)), {}


def tags(logits_BLC: jax.Array, batch: Any) -> tuple[Term, Metrics]:
    """Cross entropy of `labels`, int32 [B, L], as a mean over those that are not negative."""
    return _cross_entropy(logits_BLC, batch["labels"])


def spans(logits_BLC: jax.Array, batch: Any) -> tuple[Term, Metrics]:
    """Half the cross entropies of `start_positions` and `end_positions`, int32 [B]."""
    targets_B2 = jnp.stack([batch["start_positions"], batch["end_positions"]], axis=1)
    term, metrics = _cross_entropy(logits_BLC.swapaxes(1, 2), targets_B2)
    return term, metrics


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[Term, Metrics]:
    """Over labels [B, n] that are not negative, of logits [B, n, C]."""
    weights = (labels >= 0).astype(jnp.float32)
    sums = token_sums(logits, jnp.maximum(labels, 0), weights_BL=weights)
    weight = weights.sum()
    return Term(sums.cross_entropy, weight), {"accuracy": (sums.correct, weight)}

"""Held-out metrics: sums and weights over batches, divided once at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.protocols.data import Objective
from t5x_like.core.protocols.model import metric_value

_NOT_WHOLE_TEXTS = {"encoder_input_tokens", "decoder_causal_attention"}


def evaluate(
    step: Callable[[Any, Any], Mapping[str, tuple[Any, Any]]],
    params: Any,
    batches: Iterable[Mapping[str, Any]],
    *,
    token_bytes: np.ndarray | None = None,
) -> dict[str, float]:
    """A model's metrics over batches.

    Args:
      step: (params, global batch) -> {name: (sum, weight)}.
      params: the model's parameters.
      batches: global batches, of JAX or NumPy as `step` needs them; rows that must not count have
        loss weights of 0.
      token_bytes: int32 [vocab_size], as in `text_bytes.token_bytes`. With it, language models get
        `bits_per_byte`: over all their targets, per byte of the text that these stand for. A model
        that reads part of the text without predicting it gets none.

    Returns:
      {name: `protocols.metric_value` of the sums and the weights of all batches}.
    """
    totals: dict[str, np.ndarray] = {}
    for batch in batches:
        metrics = dict(jax.device_get(step(params, batch)))
        if token_bytes is not None and "perplexity" in metrics and _predicts_whole_texts(batch):
            count = _scored_bytes(
                batch["decoder_target_tokens"], batch["decoder_loss_weights"], token_bytes
            )
            metrics["bits_per_byte"] = (
                metrics["perplexity"][0] / math.log(2),
                jax.device_get(count),
            )
        for name, pair in metrics.items():
            # Float64 on the host: a sum over many batches must not lose small values.
            totals[name] = totals.get(name, 0.0) + np.asarray(pair, np.float64)
    return {name: metric_value(name, *pair) for name, pair in totals.items()}


def with_token_names(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a text-to-text task: `accuracy` and `loss` as `token_accuracy`, `token_loss`.

    They are of tokens after the right ones before them. What the author of the task calls its
    accuracy is another number.
    """
    known = {name: f"token_{name}" for name in ("accuracy", "loss")}
    return {known.get(name, name): value for name, value in metrics.items()}


def with_row_names(metrics: Mapping[str, float], objective: Objective) -> dict[str, float]:
    """The metrics of rows by names that those of whole answers leave them.

    The accuracy of windows, or of pieces of words, is `row_accuracy` where the objective measures
    that of texts or of words.
    """
    if objective.answers == "text":
        return with_token_names(metrics)
    known = {}
    if any(name.endswith("accuracy") for name in objective.measures):
        known = {"accuracy": "row_accuracy"}
    return {known.get(name, name): value for name, value in metrics.items()}


def _predicts_whole_texts(batch: Mapping[str, Any]) -> bool:
    return "decoder_target_tokens" in batch and not _NOT_WHOLE_TEXTS & batch.keys()


@jax.jit
def _scored_bytes(targets_BL: jax.Array, weights_BL: jax.Array, bytes_V: jax.Array) -> jax.Array:
    """Bytes of the targets that have a weight, int32 []: exact, and equal on all processes."""
    return jnp.where(weights_BL > 0, jnp.asarray(bytes_V)[targets_BL], 0).sum()

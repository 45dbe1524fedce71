"""The texts of packed rows, each with the labels that are at its first token.

Suffixes: B batch, L length, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

_OF_TEXTS = ("labels", "example_weights")


def are_packed(batch: Batch) -> bool:
    """Whether a row of the batch holds several texts."""
    return "encoder_segment_ids" in batch


def counts(batch: Batch) -> jax.Array:
    """For each position the tokens of its text, bool [B, L, L]; none for padding."""
    segments_BL = batch["encoder_segment_ids"]
    same_BLL = segments_BL[:, :, None] == segments_BL[:, None, :]
    return same_BLL & (segments_BL > 0)[:, None, :]


def of_texts(logits_BLC: jax.Array) -> jax.Array:
    """The logits at all positions as those of rows of one text each, [B L, C]."""
    return logits_BLC.reshape(-1, logits_BLC.shape[-1])


def labelled_texts(batch: Batch) -> tuple[Mapping[str, jax.Array], jax.Array]:
    """Labels and weights as those of rows of one text each, and what counts in these.

    Returns:
      `labels` and, where the batch has them, `example_weights`, [B L] each; and which of these rows
      are texts, those of first tokens: bool [B L, 1].
    """
    labels = {name: batch[name].reshape(-1) for name in _OF_TEXTS if name in batch}
    first_BL = (batch["encoder_positions"] == 0) & (batch["encoder_segment_ids"] > 0)
    return labels, first_BL.reshape(-1, 1)


def with_weights_of_tokens(batch: Batch) -> Batch:
    """The batch with the weight of each text at all of its tokens, [B, L]."""
    if "example_weights" not in batch:
        return batch
    positions_BL = batch["encoder_positions"]
    firsts_BL = jnp.arange(positions_BL.shape[1]) - positions_BL
    weights_BL = jnp.take_along_axis(batch["example_weights"], firsts_BL, axis=1)
    return {**batch, "example_weights": weights_BL}

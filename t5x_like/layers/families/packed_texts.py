"""The texts of packed rows, each with the labels that are at its first token.

Suffixes: B batch, L length, C classes, A alternatives of a choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from t5x_like.layers.heads import label_heads

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

_OF_TEXTS = ("labels", "example_weights", "start_positions", "end_positions")
_ALTERNATIVES = "alternative_positions"
_ELSEWHERE = -1e9


def are_packed(batch: Batch) -> bool:
    """Whether a row of the batch holds several texts."""
    return "encoder_segment_ids" in batch


def counts(batch: Batch) -> jax.Array:
    """For each position the tokens of its text, bool [B, L, L]; none for padding."""
    segments_BL = batch["encoder_segment_ids"]
    same_BLL = segments_BL[:, :, None] == segments_BL[:, None, :]
    return same_BLL & (segments_BL > 0)[:, None, :]


def of_texts(logits_BLC: jax.Array, batch: Batch) -> jax.Array:
    """The logits at all positions as those of rows of one text, or of one choice, each.

    Returns:
      Float32 [B L, C]; of choices [B L, A], where an alternative that is not there has none.
    """
    if _ALTERNATIVES in batch:
        at_BLA = batch[_ALTERNATIVES]
        logits_BL = logits_BLC[..., 0]
        chosen_BLA = jax.vmap(lambda logits_L, at_LA: logits_L[at_LA])(logits_BL, at_BLA)
        logits_BLC = label_heads.of_alternatives(chosen_BLA, at_BLA[..., None] >= 0)
    return logits_BLC.reshape(-1, logits_BLC.shape[-1])


def of_tokens(logits_BLC: jax.Array, batch: Batch) -> jax.Array:
    """The logits of the tokens of each text as those of rows of one text each.

    A text's tokens keep their places in its row, where tokens of others can be no answer. Softmax
    is over the text alone, and not over padding, which rows of one text have besides.

    Returns:
      Float32 [B L, L, C], as large as the scores of C heads of attention.
    """
    logits_BLLC = jnp.where(counts(batch)[..., None], logits_BLC[:, None], _ELSEWHERE)
    return logits_BLLC.reshape(-1, *logits_BLC.shape[1:])


def labelled_texts(batch: Batch) -> tuple[Mapping[str, jax.Array], jax.Array]:
    """Labels and weights as those of rows of one text, or of one choice, each.

    Returns:
      `labels`, or starts and ends, and, where the batch has them, `example_weights`, [B L, ...]
      each; and which of these rows are texts, those of first tokens: bool [B L, 1], or which are
      choices and have which alternatives, bool [B L, A].
    """
    labels = {
        name: batch[name].reshape(-1, *batch[name].shape[2:]) for name in _OF_TEXTS if name in batch
    }
    if _ALTERNATIVES in batch:
        return labels, (batch[_ALTERNATIVES] >= 0).reshape(-1, batch[_ALTERNATIVES].shape[-1])
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

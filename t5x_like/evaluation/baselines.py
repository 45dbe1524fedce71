"""What a trained encoder-decoder must beat: a unigram model, and itself with a blanked encoder.

All functions take and return NumPy batches of span-corruption features and leave `decoder_*`
alignment alone, so that the three figures are about the same target tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from t5x_like.protocols import TokenIds

NumpyBatch = Mapping[str, np.ndarray]


def content_only(batch: NumpyBatch, ids: TokenIds) -> dict[str, np.ndarray]:
    """The batch with loss weights on ordinary target tokens alone: no sentinel, no EOS.

    Args:
      batch: `encoder_input_tokens` int32 [B, L]; `decoder_target_tokens` int32 and
        `decoder_loss_weights` float32, both [B, T].
      ids: the vocabulary's special ids.
    """
    targets = batch["decoder_target_tokens"]
    special = _is_sentinel(targets, batch["encoder_input_tokens"], ids)
    special |= (targets == ids.pad) | (targets == ids.eos)
    weights = np.where(special, 0, batch["decoder_loss_weights"]).astype(np.float32)
    return {**batch, "decoder_loss_weights": weights}


def blank_encoder(batch: NumpyBatch, ids: TokenIds) -> dict[str, np.ndarray]:
    """The batch with every ordinary encoder token padded away: sentinels and EOS stay in place.

    The model still sees how many blanks there are and where, and nothing of the text around them.
    """
    tokens = batch["encoder_input_tokens"]
    keep = _is_sentinel(tokens, tokens, ids) | (tokens == ids.eos)
    return {**batch, "encoder_input_tokens": np.where(keep, tokens, ids.pad)}


def unigram_cross_entropy(batches: Iterable[NumpyBatch], counts: np.ndarray) -> float:
    """Nats per weighted target token under a unigram model with add-one smoothing.

    Args:
      batches: their `decoder_loss_weights` say which targets count.
      counts: int [vocab_size], occurrences of each id in the training split.
    """
    smoothed = counts.astype(np.float64) + 1
    log_probability = np.log(smoothed / smoothed.sum())
    total = weight = 0.0
    for batch in batches:
        weights = batch["decoder_loss_weights"].astype(np.float64)
        total -= float((log_probability[batch["decoder_target_tokens"]] * weights).sum())
        weight += float(weights.sum())
    return total / weight if weight else float("nan")


def _is_sentinel(tokens: np.ndarray, encoder_tokens: np.ndarray, ids: TokenIds) -> np.ndarray:
    """Bool like `tokens` [B, N]: the ids that stand for a blank in that row.

    Sentinels count down from the top id without a gap, so a row's sentinels are the longest such
    run in its encoder input; a byte vocabulary's other top bytes are then left as ordinary tokens.
    """
    top = ids.sentinel(0)
    present = np.zeros((len(encoder_tokens), top + 2), bool)
    np.put_along_axis(present, encoder_tokens, True, axis=1)
    first_absent = np.argmin(present[:, top::-1], axis=1)
    return tokens > (top - first_absent)[:, None]

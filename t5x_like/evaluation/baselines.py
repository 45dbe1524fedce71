"""What a trained model must beat: a unigram model, and itself with a blanked encoder.

Batches are NumPy's, of any kind of model. What is blanked, or scored in part, keeps its targets, so
that all figures are about the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from t5x_like.protocols import TokenIds

NumpyBatch = Mapping[str, np.ndarray]


def content_only(batch: NumpyBatch, ids: TokenIds) -> dict[str, np.ndarray]:
    """The batch with loss weights on ordinary target tokens alone: no sentinel, no special token.

    Args:
      batch: `encoder_input_tokens` int32 [B, L]; `decoder_target_tokens` int32 and
        `decoder_loss_weights` float32, both [B, T].
      ids: the vocabulary's special ids.
    """
    targets = batch["decoder_target_tokens"]
    left_out = _is_special(targets, batch["encoder_input_tokens"], ids) | (targets == ids.pad)
    weights = np.where(left_out, 0, batch["decoder_loss_weights"]).astype(np.float32)
    return {**batch, "decoder_loss_weights": weights}


def blank_encoder(batch: NumpyBatch, ids: TokenIds) -> dict[str, np.ndarray]:
    """The batch with every ordinary encoder token padded away: the special ones stay in place.

    The model still sees how many blanks there are and where, and nothing of the text around them.
    """
    tokens = batch["encoder_input_tokens"]
    keep = _is_special(tokens, tokens, ids)
    return {**batch, "encoder_input_tokens": np.where(keep, tokens, ids.pad)}


def unigram(counts: np.ndarray) -> Callable[[Any, NumpyBatch], dict[str, Any]]:
    """A step for `evaluator.evaluate`: each token as likely as it is frequent, one added to each.

    Its metrics are `loss`, `accuracy` (of the most frequent one) and `perplexity` of the targets of
    a decoder, or of the masked tokens of an encoder, by their loss weights. It has no parameters.

    Args:
      counts: int [vocab_size], occurrences of each id in the training split.
    """
    smoothed = counts.astype(np.float64) + 1
    nll = -np.log(smoothed / smoothed.sum())
    likeliest = int(nll.argmin())

    def step(params: Any, batch: NumpyBatch) -> dict[str, Any]:
        masked = "masked_targets" in batch
        targets = batch["masked_targets" if masked else "decoder_target_tokens"]
        weights = batch["masked_loss_weights" if masked else "decoder_loss_weights"]
        weights = weights.astype(np.float64)
        total, weight = (nll[targets] * weights).sum(), weights.sum()
        right = ((targets == likeliest) * weights).sum()
        return {
            "loss": (total, weight),
            "accuracy": (right, weight),
            "perplexity": (total, weight),
        }

    return step


def _is_special(tokens: np.ndarray, encoder_tokens: np.ndarray, ids: TokenIds) -> np.ndarray:
    """Bool like `tokens` [B, N]: sentinels, and special tokens other than padding and unknown ones.

    Sentinels count down from the top id without a gap, so a row's sentinels are the longest such
    run in its encoder input; a byte vocabulary's other top bytes are then left as ordinary tokens.
    """
    special = np.isin(tokens, sorted({*ids.special} - {ids.pad, ids.unk}))
    if ids.sentinels is None:
        return special
    top = ids.sentinel(0)
    present = np.zeros((len(encoder_tokens), top + 2), bool)
    np.put_along_axis(present, encoder_tokens, True, axis=1)
    first_absent = np.argmin(present[:, top::-1], axis=1)
    return special | (tokens > (top - first_absent)[:, None])

"""Baselines that a trained model must beat: frequencies, and its own results without text.

Batches are NumPy's, of any kind of model. Blanked or partly scored batches keep their targets, so
that all figures are about the same tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from t5x_like.core.protocols.data import TokenIds
from t5x_like.layers.families.encoder_pretraining import SENTENCE_LABELS
from t5x_like.layers.losses.label_losses import label_weights

NumpyBatch = Mapping[str, np.ndarray]


def content_only(batch: NumpyBatch, ids: TokenIds) -> dict[str, np.ndarray]:
    """The batch with loss weights only on ordinary target tokens: no sentinels or special tokens.

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
    """The batch with ordinary encoder tokens replaced by padding; special ones stay in place.

    The model still sees the number and places of the blanks, but none of the text around them.
    """
    tokens = batch["encoder_input_tokens"]
    keep = _is_special(tokens, tokens, ids)
    return {**batch, "encoder_input_tokens": np.where(keep, tokens, ids.pad)}


def with_special_targets(
    counts: np.ndarray, rows: Sequence[NumpyBatch], ids: TokenIds
) -> np.ndarray:
    """Counts of ids in text, with counts added for special ids that are predicted.

    Text has no special ids, but some objectives predict them: RoBERTa's `<s>` and `</s>`, a
    language model's separators, T5's sentinels. They get the same frequency as among the targets of
    `rows`.

    Args:
      counts: int [vocab_size], counts in the training text.
      rows: batches that `unigram` can score.
      ids: the vocabulary's special ids.

    Returns:
      float64 [vocab_size].
    """
    scored = np.zeros(len(counts))
    for targets, weights in map(_targets, rows):
        scored += np.bincount(targets.ravel(), weights.ravel(), minlength=len(counts))
    top = map(ids.sentinel, range(ids.sentinels or 0))
    sentinels = [i for i in top if not counts[i]]  # a byte vocabulary's may be text as well
    unpredicted = (ids.pad, ids.unk)
    special = [i for i in (*ids.special, *sentinels) if i not in unpredicted and scored[i]]
    if not special:
        return counts.astype(np.float64)
    of_text = scored.sum() - scored[special].sum()
    both = counts.astype(np.float64)
    both[special] = scored[special] * (counts.sum() / max(of_text, 1))
    return both


def unigram(counts: np.ndarray) -> Callable[[Any, NumpyBatch], dict[str, Any]]:
    """A step for `evaluator.evaluate` that predicts tokens by their counts plus one.

    Its metrics are `loss`, `accuracy` (of the most frequent id) and `perplexity` of the targets of
    a decoder, or of the masked tokens of an encoder, by their loss weights. It has no parameters.

    Args:
      counts: number [vocab_size], occurrences of each id in the training split.
    """
    smoothed = counts.astype(np.float64) + 1
    nll = -np.log(smoothed / smoothed.sum())
    likeliest = int(nll.argmin())

    def step(params: Any, batch: NumpyBatch) -> dict[str, Any]:
        targets, weights = _targets(batch)
        total, weight = (nll[targets] * weights).sum(), weights.sum()
        right = ((targets == likeliest) * weights).sum()
        return {
            "loss": (total, weight),
            "accuracy": (right, weight),
            "perplexity": (total, weight),
        }

    return step


def has_targets(batch: NumpyBatch) -> bool:
    """Whether a batch has tokens to predict."""
    return "masked_targets" in batch or "decoder_target_tokens" in batch


def _targets(batch: NumpyBatch) -> tuple[np.ndarray, np.ndarray]:
    """The tokens to predict and their loss weights, float64."""
    masked = "masked_targets" in batch
    weights = batch["masked_loss_weights" if masked else "decoder_loss_weights"]
    return batch["masked_targets" if masked else "decoder_target_tokens"], weights.astype(float)


def _is_special(tokens: np.ndarray, encoder_tokens: np.ndarray, ids: TokenIds) -> np.ndarray:
    """Marks, as bool [B, N], sentinels and special tokens other than padding and unknown ones.

    Sentinels count down from the top id without a gap, so a row's sentinels are the longest such
    run in its encoder input; a byte vocabulary's other top bytes are left as ordinary tokens.
    """
    special = np.isin(tokens, sorted({*ids.special} - {ids.pad, ids.unk}))
    if ids.sentinels is None:
        return special
    top = ids.sentinel(0)
    present = np.zeros((len(encoder_tokens), top + 2), bool)
    np.put_along_axis(present, encoder_tokens, True, axis=1)
    first_absent = np.argmin(present[:, top::-1], axis=1)
    return special | (tokens > (top - first_absent)[:, None])


def label_shares(rows: Sequence[NumpyBatch], found: Mapping[str, float]) -> dict[str, float]:
    """Metrics of knowing only how common each label is.

    Args:
      rows: the evaluated rows, with or without labels of pairs of sentences.
      found: the model's metrics on them, which include the share of replaced tokens.

    Returns:
      `sentence_loss` and `sentence_accuracy` of always predicting the commoner label, and
      `discriminator_text_loss` and `replaced_auc` of the same score for every token of the text.
    """
    shares: dict[str, float] = {}
    names = [name for name in SENTENCE_LABELS if name in rows[0]]
    if names:
        labels = [row[names[0]][row["encoder_attention_mask"].any(axis=1)] for row in rows]
        share = float(np.concatenate(labels).mean())
        shares |= {
            "sentence_loss": _entropy(share, 1 - share),
            "sentence_accuracy": max(share, 1 - share),
        }
    if "replaced_share" in found:
        loss = _entropy(found["replaced_share"], 1 - found["replaced_share"])
        shares |= {"discriminator_text_loss": loss, "replaced_auc": 0.5}
    return shares


def class_shares(rows: Sequence[NumpyBatch]) -> dict[str, float]:
    """`loss` and `accuracy` of knowing only how common each class, or each tag, is.

    Args:
      rows: the evaluated rows, with int32 [B] or [B, L] `labels`.
    """
    weights = [label_weights(row, jnp.asarray(row["encoder_attention_mask"])) for row in rows]
    labels = [row["labels"][np.asarray(w) > 0] for row, w in zip(rows, weights, strict=True)]
    shares = np.unique(np.concatenate(labels), return_counts=True)[1] / sum(map(len, labels))
    return {"loss": _entropy(*shares.tolist()), "accuracy": float(shares.max())}


def _entropy(*shares: float) -> float:
    """The entropy of a label whose values have these probabilities, in nats."""
    return -sum(p * math.log(p) for p in shares if p > 0)

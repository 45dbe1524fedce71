"""A decoder that learns to choose while it keeps predicting tokens (Radford et al., 2018).

Suffixes: B batch, A alternatives of a choice, N = B * A texts, L length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import CountsFlops
from t5x_like.layers.basics.dropout import subkeys
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.families.body import OnBody
from t5x_like.layers.families.decoder_only import DecoderOnly
from t5x_like.layers.heads import label_heads
from t5x_like.layers.losses import accounting, label_losses
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import TokenSums, token_sums
from t5x_like.layers.losses.term_loss import TermLoss

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


class DoubleHeads(OnBody, TermLoss):
    """A body, whose token table gives a language model's logits, and a head for choices.

    A batch holds what the body reads, and its targets and their weights, [B, A, L] each; int32
    `labels` [B], the right alternative; and optionally int32 `choice_positions` [B, A], where the
    head reads, instead of at the last token that is not padding, and float32 `example_weights` [B],
    by which rows count. Of an encoder's batch, each token is the target of the one before it, and
    an alternative without tokens cannot be chosen.

    Attributes:
      lm_weight: of the language model's mean; the choice's weight is 1 (GPT, sections 3.2, 4.1).
    """

    def __init__(
        self,
        body: Callable[..., DecoderOnly],
        head: Callable[..., label_heads.SequenceHead],
        *,
        lm_weight: float = 0.5,
        rngs: nnx.Rngs,
    ) -> None:
        self.body = body(rngs=rngs)
        config = self.body.config
        self.head = head(config.d_model, dtype=config.dtype, rngs=rngs)
        self.lm_weight = lm_weight
        self.config = config

    @property
    def abilities(self) -> tuple[type, ...]:
        """Those of a body and a head, and to count."""
        return (*super().abilities, CountsFlops)

    @property
    def padding(self) -> int | None:
        """The body's padding id."""
        return self.body.padding

    def scores(self, batch: Batch, key: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """Logits of tokens, float32 [B, A, L, V], and of alternatives, [B, A]."""
        batch = _written(batch)
        tokens, choices_BA = self._scores(batch, key)
        return tokens.logits().reshape(*batch["decoder_input_tokens"].shape, -1), choices_BA

    def _scores(self, batch: Batch, key: jax.Array | None) -> tuple[TokenScores, jax.Array]:
        """Scores of tokens, [N, L, V], and logits of alternatives, float32 [B, A]."""
        keys = subkeys(key, 2)
        counts_BAL = self._counts(batch)
        shape = counts_BAL.shape
        texts = _texts(batch)
        tokens_NL = texts["decoder_input_tokens"]
        x_NLD = self.body.hidden(texts, keys[0]).last
        if "choice_positions" in texts:
            until_NL = jnp.arange(shape[-1]) <= texts["choice_positions"][:, None]
        else:
            until_NL = counts_BAL.reshape(tokens_NL.shape)
        choices_N1 = self.head(x_NLD, tokens_NL, until_NL, keys[1])
        choices_BA = label_heads.of_alternatives(choices_N1.reshape(shape[:2]), counts_BAL)
        return self.body.token_scores(x_NLD), choices_BA

    @property
    def answer_form(self) -> str:
        """A choice."""
        return "choices"

    def answers(self, batch: Batch) -> jax.Array:
        """The logits of alternatives, float32 [B, A]; a row of a body's batch, [B, L], is one."""
        batch = _written(batch)
        if batch["decoder_input_tokens"].ndim == 2:
            batch = {name: x[:, None] for name, x in batch.items()}
        return self._scores(batch, None)[1]

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Denominators: `choice` rows, `lm` target tokens."""
        batch = _written(batch)
        rows_B = label_losses.label_weights(batch, self._counts(batch))
        weighed_B = label_losses.example_weights(batch, rows_B)
        return {"choice": weighed_B.sum(), "lm": _token_weights(batch).sum()}

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """`choice`, and `lm` times `lm_weight`.

        Metrics: `accuracy` of choices, which counts each row once, `lm_accuracy`, `lm_perplexity`.
        """
        batch = _written(batch)
        scores, choices_BA = self._scores(batch, key)
        rows_B = label_losses.label_weights(batch, self._counts(batch))
        weighed_B = label_losses.example_weights(batch, rows_B)
        choice, _ = label_losses.classes(choices_BA, batch, weighed_B)
        _, metrics = label_losses.classes(choices_BA, batch, rows_B)
        lm, sums = self._language_model(scores, batch)
        metrics = {
            "accuracy": metrics["accuracy"],
            "lm_accuracy": (sums.correct, lm.weight),
            "lm_perplexity": (sums.nll, lm.weight),
        }
        return {"choice": choice, "lm": lm}, metrics, carry

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        return {
            "tokens": accounting.count(self._counts(batch)),
            "flops": self.flops(batch),
        }

    def flops(self, batch: Batch) -> jax.Array:
        """Those of the body, with all logits, and of the head, float32 []."""
        texts = _texts(_written(batch))
        counts_NL = self._counts(texts)
        heads = counts_NL.any(axis=1).sum() * accounting.matrix_size(self.head)
        body = self.body.flops({**texts, "decoder_segment_ids": counts_NL.astype(jnp.int32)})
        return body + accounting.step_flops(heads)

    def _language_model(self, scores: TokenScores, batch: Batch) -> tuple[Term, TokenSums]:
        """The language model's term, and its token sums for metrics."""
        config = self.config
        targets_BAL = batch["decoder_target_tokens"]
        targets_NL = targets_BAL.reshape(-1, targets_BAL.shape[-1])
        weights_NL = _token_weights(batch).reshape(targets_NL.shape)
        sums = token_sums(
            scores,
            targets_NL,
            weights_BL=weights_NL,
            label_smoothing=config.label_smoothing,
        )
        total = sums.cross_entropy + config.z_loss * sums.squared_log_z
        return Term(total, weights_NL.sum(), self.lm_weight), sums

    def _counts(self, batch: Batch) -> jax.Array:
        """Above 0 for tokens; all count where nothing marks padding."""
        if "encoder_attention_mask" in batch:
            return batch["encoder_attention_mask"]
        return batch["decoder_input_tokens"] != (-1 if self.padding is None else self.padding)


def _written(batch: Batch) -> Batch:
    """A decoder's batch; the tokens of an encoder's are what there is to write."""
    if "decoder_input_tokens" in batch:
        return batch
    tokens, counts = batch["encoder_input_tokens"], batch["encoder_attention_mask"]
    return {
        **batch,
        "decoder_input_tokens": tokens,
        "decoder_target_tokens": _following(tokens),
        "decoder_loss_weights": _following(counts).astype(jnp.float32),
    }


def _following(x: jax.Array) -> jax.Array:
    """The value after each place, [..., L]; 0 after the last."""
    return jnp.concatenate([x[..., 1:], jnp.zeros_like(x[..., :1])], axis=-1)


def _token_weights(batch: Batch) -> jax.Array:
    """The weights of targets, by which their rows count as well: float32 [B, A, L]."""
    return label_losses.example_weights(batch, batch["decoder_loss_weights"])


def _texts(batch: Batch) -> dict[str, jax.Array]:
    """The arrays of a batch by text, [N, ...]."""
    return {name: x.reshape(-1, *x.shape[2:]) for name, x in batch.items() if x.ndim > 1}

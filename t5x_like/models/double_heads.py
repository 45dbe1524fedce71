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
    head reads, instead of at the last token that is not padding.

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
        keys = subkeys(key, 2)
        shape = batch["decoder_input_tokens"].shape
        texts = _texts(batch)
        tokens_NL = texts["decoder_input_tokens"]
        x_NLD = self.body.hidden(texts, keys[0]).last
        if "choice_positions" in texts:
            until_NL = jnp.arange(shape[-1]) <= texts["choice_positions"][:, None]
        else:
            until_NL = self._counts(texts)
        choices_N1 = self.head(x_NLD, tokens_NL, until_NL, keys[1])
        logits_NLV = self.body.token_scores(x_NLD).logits()
        return logits_NLV.reshape(*shape, -1), choices_N1.reshape(shape[:2])

    @property
    def answer_form(self) -> str:
        """A choice."""
        return "choices"

    def answers(self, batch: Batch) -> jax.Array:
        """The logit of each row of the body's batch as an alternative, float32 [B, 1]."""
        return self.scores({name: x[:, None] for name, x in batch.items()})[1]

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Denominators: `choice` rows, `lm` target tokens."""
        rows_B = label_losses.label_weights(batch, self._counts(batch))
        return {"choice": rows_B.sum(), "lm": batch["decoder_loss_weights"].sum()}

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """`choice`, and `lm` times `lm_weight`.

        Metrics: `choice_accuracy`, `lm_accuracy`, `lm_perplexity`.
        """
        logits_BALV, choices_BA = self.scores(batch, key)
        rows_B = label_losses.label_weights(batch, self._counts(batch))
        choice, metrics = label_losses.classes(choices_BA, batch, rows_B)
        lm, sums = self._language_model(logits_BALV, batch)
        metrics = {
            "choice_accuracy": metrics["accuracy"],
            "lm_accuracy": (sums.correct, lm.weight),
            "lm_perplexity": (sums.nll, lm.weight),
        }
        return {"choice": choice, "lm": lm}, metrics, carry

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        return {
            "tokens": accounting.count(self._counts(_texts(batch))),
            "flops": self.flops(batch),
        }

    def flops(self, batch: Batch) -> jax.Array:
        """Those of the body, with all logits, and of the head, float32 []."""
        texts = _texts(batch)
        counts_NL = self._counts(texts)
        heads = counts_NL.any(axis=1).sum() * accounting.matrix_size(self.head)
        body = self.body.flops({**texts, "decoder_segment_ids": counts_NL.astype(jnp.int32)})
        return body + accounting.step_flops(heads)

    def _language_model(self, logits_BALV: jax.Array, batch: Batch) -> tuple[Term, TokenSums]:
        """The language model's term, and its token sums for metrics."""
        config, length = self.config, logits_BALV.shape[2]
        weights_NL = batch["decoder_loss_weights"].reshape(-1, length)
        sums = token_sums(
            logits_BALV.reshape(len(weights_NL), length, -1),
            batch["decoder_target_tokens"].reshape(-1, length),
            weights_BL=weights_NL,
            label_smoothing=config.label_smoothing,
        )
        total = sums.cross_entropy + config.z_loss * sums.squared_log_z
        return Term(total, weights_NL.sum(), self.lm_weight), sums

    def _counts(self, batch: Batch) -> jax.Array:
        """Above 0 for tokens; all count where nothing marks padding."""
        return batch["decoder_input_tokens"] != (-1 if self.padding is None else self.padding)


def _texts(batch: Batch) -> dict[str, jax.Array]:
    """The arrays of a batch by text, [N, ...]."""
    return {name: x.reshape(-1, *x.shape[2:]) for name, x in batch.items() if x.ndim > 1}

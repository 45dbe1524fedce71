"""A decoder that goes on predicting tokens while it learns to choose (Radford et al., 2018).

Suffixes: B batch, A alternatives of a choice, N = B * A texts, L length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers import accounting, tasks
from t5x_like.layers.accounting import Term
from t5x_like.layers.decoder_only import DecoderOnly
from t5x_like.layers.dropout import subkeys
from t5x_like.layers.losses import TokenSums, token_sums

if TYPE_CHECKING:
    from t5x_like.protocols import Batch, Metrics


class DoubleHeads(nnx.Module):
    """A body, whose token table gives the logits of a language model, and a head for choices.

    A batch holds what the body reads, and its targets and their weights, [B, A, L] each; int32
    `labels` [B], the alternative that is right; and, where the head does not read the last token
    that is not padding, int32 `choice_positions` [B, A], where it does.

    Attributes:
      lm_weight: of the language model's mean; the choice's is 1 (GPT, sections 3.2 and 4.1).
    """

    def __init__(
        self,
        body: Callable[..., DecoderOnly],
        head: Callable[..., nnx.Module],
        *,
        lm_weight: float = 0.5,
        rngs: nnx.Rngs,
    ) -> None:
        self.body = body(rngs=rngs)
        config = self.body.config
        self.head = head(config.d_model, dtype=config.dtype, rngs=rngs)
        self.lm_weight = lm_weight
        self.config = config

    def scores(self, batch: Batch, key: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """Logits of tokens, float32 [B, A, L, V], and of alternatives, [B, A]."""
        keys = subkeys(key, 2)
        shape = batch["decoder_input_tokens"].shape
        texts = {name: x.reshape(-1, *x.shape[2:]) for name, x in batch.items() if x.ndim > 1}
        tokens_NL = texts["decoder_input_tokens"]
        x_NLD = self.body.hidden(texts, keys[0]).last
        if "choice_positions" in texts:
            until_NL = jnp.arange(shape[-1]) <= texts["choice_positions"][:, None]
        else:
            until_NL = self._counts(texts)
        choices_N1 = self.head(x_NLD, tokens_NL, until_NL, keys[1])
        return self.body.score(x_NLD).reshape(*shape, -1), choices_N1.reshape(shape[:2])

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Denominators: `choice` rows, `lm` target tokens."""
        rows_B = tasks.label_weights(batch, self._counts(batch))
        return {"choice": rows_B.sum(), "lm": batch["decoder_loss_weights"].sum()}

    def initial_carry(self, batch_size: int) -> tuple[()]:
        return ()

    def loss(
        self,
        batch: Batch,
        key: jax.Array | None,
        carry: tuple[()],
        weights: dict[str, jax.Array],
    ) -> tuple[jax.Array, Metrics, tuple[()]]:
        """The mean over choices, plus `lm_weight` times that over target tokens.

        Metrics: `loss`, `choice_loss`, `lm_loss`, `choice_accuracy`, `lm_accuracy`,
        `lm_perplexity`, `tokens`.
        """
        logits_BALV, choices_BA = self.scores(batch, key)
        counts_BAL = self._counts(batch)
        rows_B = tasks.label_weights(batch, counts_BAL)
        choice, metrics = tasks.classes(choices_BA, batch, rows_B)
        lm, sums = self._language_model(logits_BALV, batch)
        scalar, losses = accounting.combine({"choice": choice, "lm": lm}, weights)
        share = choice.weight / accounting.at_least_one(weights["choice"])
        return (
            scalar,
            {
                **losses,
                "choice_accuracy": metrics["accuracy"],
                "lm_accuracy": (sums.correct, lm.weight),
                "lm_perplexity": (sums.nll, lm.weight),
                "tokens": (accounting.count(counts_BAL), share),
            },
            carry,
        )

    def _language_model(self, logits_BALV: jax.Array, batch: Batch) -> tuple[Term, TokenSums]:
        """Its term, and what there is to say of it besides."""
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
        """Above 0 for tokens: all of them where nothing tells which is padding."""
        padding = self.body.padding
        return batch["decoder_input_tokens"] != (-1 if padding is None else padding)

"""The loss of a decoder's targets, which T5, BART and GPT share.

Suffixes: B batch, L target length, D d_model, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp

from t5x_like.core.abilities import CountsFlops, ScoresTargets
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import token_sums
from t5x_like.layers.losses.term_loss import TermLoss

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


class TargetLoss(TermLoss):
    """A model whose loss is the cross entropy of `decoder_target_tokens`, int32 [B, L].

    `decoder_loss_weights`, float32 [B, L], weigh the targets. A subclass defines the methods that
    raise `NotImplementedError` here; `scores` stands in for `token_scores` and `hidden`.
    """

    config: Any  # has `z_loss` and `label_smoothing`
    max_positions: int | None = None  # of a row, or of a side, where positions have a table
    abilities: ClassVar[tuple[type, ...]] = (CountsFlops, ScoresTargets)

    @property
    def max_tokens(self) -> int | None:
        """Its positions; None for any number."""
        return self.max_positions

    def token_scores(self, x_BLD: jax.Array) -> TokenScores:
        """The scores of last states."""
        raise NotImplementedError

    def hidden(self, *args: Any, **options: Any) -> Any:
        """The states of a batch and a key; `last`, [B, L, D], is what `token_scores` reads."""
        raise NotImplementedError

    def tokens(self, batch: Batch) -> jax.Array:
        """The number of tokens that are not padding, float32 []."""
        raise NotImplementedError

    def flops(self, batch: Batch) -> jax.Array:
        """Floating point operations of a training step on this batch, float32 []."""
        raise NotImplementedError

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        return {"tokens": self.tokens(batch), "flops": self.flops(batch)}

    def scores(self, batch: Batch, key: jax.Array | None = None) -> TokenScores:
        """The scores of all tokens at each target; without dropout where `key` is None."""
        return self.token_scores(self.hidden(batch, key).last)

    def logits(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """Logits, float32 [B, L, V]; without dropout where `key` is None."""
        return self.scores(batch, key).logits()

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The one term's denominator: the sum of `decoder_loss_weights`."""
        return {"tokens": batch["decoder_loss_weights"].astype(jnp.float32).sum()}

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """The loss of the scores of a batch (`of_scores`)."""
        return *self.of_scores(batch, self.scores(batch, key)), carry

    def of_scores(self, batch: Batch, scores: TokenScores) -> tuple[dict[str, Term], Metrics]:
        """(cross entropy + z_loss * log(Z)^2) over weighted target tokens (T5, section 3.1.2).

        Metrics `loss` (without the z term), `z_loss`, `accuracy` and `perplexity` (without label
        smoothing) are weighted by target tokens.
        """
        weights_BL = batch["decoder_loss_weights"].astype(jnp.float32)
        sums = token_sums(
            scores,
            batch["decoder_target_tokens"],
            weights_BL=weights_BL,
            label_smoothing=self.config.label_smoothing,
        )
        here = weights_BL.sum()
        z_loss = self.config.z_loss * sums.squared_log_z
        metrics = {
            "loss": (sums.cross_entropy, here),
            "z_loss": (z_loss, here),
            "accuracy": (sums.correct, here),
            "perplexity": (sums.nll, here),
        }
        return {"tokens": Term(sums.cross_entropy + z_loss, here)}, metrics

"""The loss of a decoder's targets, which T5, BART and GPT share.

Suffixes: B batch, L target length, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.cross_entropy import token_sums

if TYPE_CHECKING:
    from t5x_like.core.protocols import Batch, Metrics


class TargetLoss(nnx.Module):
    """A model whose loss is the cross entropy of `decoder_target_tokens`, int32 [B, L].

    `decoder_loss_weights`, float32 [B, L], weigh them. A subclass defines `logits`, `tokens` and
    `flops`.
    """

    config: Any  # has `z_loss` and `label_smoothing`

    def logits(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """Logits, float32 [B, L, V]; without dropout where `key` is None."""
        raise NotImplementedError

    def tokens(self, batch: Batch) -> jax.Array:
        """The number of tokens that are not padding, float32 []."""
        raise NotImplementedError

    def flops(self, batch: Batch) -> jax.Array:
        """Floating point operations of a training step on this batch, float32 []."""
        raise NotImplementedError

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The one term's denominator: the sum of `decoder_loss_weights`."""
        return {"tokens": batch["decoder_loss_weights"].astype(jnp.float32).sum()}

    def initial_carry(self, batch_size: int) -> tuple[()]:
        return ()

    def loss(
        self,
        batch: Batch,
        key: jax.Array | None,
        carry: tuple[()],
        weights: dict[str, jax.Array],
    ) -> tuple[jax.Array, Metrics, tuple[()]]:
        """(cross entropy + z_loss * log(Z)^2) over weighted target tokens (T5, section 3.1.2).

        Metrics `loss` (without the z term), `z_loss`, `accuracy` and `perplexity` (without label
        smoothing) are weighted by target tokens; `tokens` (all that are not padding) and `flops`
        count this batch.
        """
        weights_BL = batch["decoder_loss_weights"].astype(jnp.float32)
        sums = token_sums(
            self.logits(batch, key),
            batch["decoder_target_tokens"],
            weights_BL=weights_BL,
            label_smoothing=self.config.label_smoothing,
        )
        total = accounting.at_least_one(weights["tokens"])
        here = weights_BL.sum()
        z_loss = self.config.z_loss * sums.squared_log_z
        metrics = {
            "loss": (sums.cross_entropy, here),
            "z_loss": (z_loss, here),
            "accuracy": (sums.correct, here),
            "perplexity": (sums.nll, here),
            **accounting.totals(
                tokens=self.tokens(batch), flops=self.flops(batch), share=here / total
            ),
        }
        return (sums.cross_entropy + z_loss) / total, metrics, carry

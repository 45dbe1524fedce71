"""A loss that sums the means of several terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
from flax import nnx

from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


class TermLoss(nnx.Module):
    """A model whose loss has several terms, which its subclasses define."""

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Each term's denominator, as in `protocols.Model`."""
        raise NotImplementedError

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """The terms of the loss under the names of `weights`, further metrics, and the next carry.

        The carry is what the step before returned, or `initial_carry`. A model without memory
        returns it as it is.
        """
        raise NotImplementedError

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        """Counts of a training step on this batch, float32 [] each.

        `tokens`, all that are not padding, and where known `flops`: floating point operations of
        matrix products only, backward twice forward, without padding.
        """
        raise NotImplementedError

    def initial_carry(self, batch_size: int) -> Carry:
        """The state of the model before its first step, one row for each row of the batch.

        It is `()` by default. A recurrent model returns arrays [batch_size, ...], and its `terms`
        the same shapes.
        """
        return ()

    def loss(
        self,
        batch: Batch,
        key: jax.Array | None,
        carry: Carry,
        weights: dict[str, jax.Array],
    ) -> tuple[jax.Array, Metrics, Carry]:
        """The sum of the terms' means, each times its coefficient.

        Metrics: `loss`; `<name>_loss` of each term, unless the terms bring a `loss` of their own;
        what else the terms add; what `counted` returns.
        """
        terms, metrics, carry = self.terms(batch, key, carry)
        scalar, losses = accounting.combine(terms, weights)
        if "loss" in metrics:
            losses = {}
        return scalar, {**losses, **metrics, **self.totals(batch, terms, weights)}, carry

    def totals(
        self, batch: Batch, terms: dict[str, Term], weights: dict[str, jax.Array]
    ) -> Metrics:
        """What `counted` returns, as metrics; the share of the first term is that of the batch."""
        name, term = next(iter(terms.items()))
        share = term.weight / accounting.at_least_one(weights[name])
        return accounting.totals(share=share, **self.counted(batch))

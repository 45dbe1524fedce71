"""A loss that is the sum of the means of several terms, of a model without memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
from flax import nnx

from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term

if TYPE_CHECKING:
    from t5x_like.core.protocols import Batch, Metrics


class TermLoss(nnx.Module):
    """A model that says what terms its loss has; they are for its subclasses to say."""

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Each term's denominator, as of `protocols.Model`."""
        raise NotImplementedError

    def terms(self, batch: Batch, key: jax.Array | None) -> tuple[dict[str, Term], Metrics]:
        """The terms of the loss by the names of `weights`, and further metrics."""
        raise NotImplementedError

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        """What a training step on this batch does, float32 [] each.

        `tokens`, all that are not padding, and where that is known `flops`: floating point
        operations, of matrix products only, backward twice forward, without padding.
        """
        raise NotImplementedError

    def initial_carry(self, batch_size: int) -> tuple[()]:
        return ()

    def loss(
        self,
        batch: Batch,
        key: jax.Array | None,
        carry: tuple[()],
        weights: dict[str, jax.Array],
    ) -> tuple[jax.Array, Metrics, tuple[()]]:
        """The sum of the terms' means, each times its coefficient.

        Metrics: `loss` and `<name>_loss` of each term, unless the terms come with a `loss` of their
        own; what else comes with the terms; what is `counted`.
        """
        terms, metrics = self.terms(batch, key)
        scalar, losses = accounting.combine(terms, weights)
        if "loss" in metrics:
            losses = {}
        name, term = next(iter(terms.items()))
        share = term.weight / accounting.at_least_one(weights[name])
        totals = accounting.totals(share=share, **self.counted(batch))
        return scalar, {**losses, **metrics, **totals}, carry

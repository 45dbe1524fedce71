"""Losses of labels: a head's logits and a batch's labels make a term and metrics.

Rows of padding, which fill up a batch, have no labels. In tags, padding in a row has none either.

Suffixes: B batch, A alternatives of a choice, L length, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import token_sums

Metrics = Mapping[str, tuple[jax.Array, jax.Array]]


class LabelLoss(Protocol):
    """A loss of labels, such as a function that `declares` marks.

    Attributes:
      form: the form of the labels, as `declares` takes it.
    """

    @property
    def form(self) -> str: ...

    def denominator(self, batch: Any, weights: jax.Array, /) -> jax.Array:
        """The weight of the term for a batch and its `label_weights`."""

    def __call__(
        self, logits: jax.Array, batch: Any, weights: jax.Array, /
    ) -> tuple[Term, Metrics]:
        """The loss term and metrics for logits, a batch and its `label_weights`."""


def declares(form: str) -> Callable[[Any], LabelLoss]:
    """A decorator of a loss that says what its labels are.

    Args:
      form: "classes", "neighbours" (classes that say whether two texts belong together), "several",
        "numbers", "ordered" (classes), "tags" or "spans".
    """

    def marked(function: Any) -> LabelLoss:
        function.form = form
        function.denominator = lambda batch, weights: weights.sum()
        loss: LabelLoss = function
        return loss

    return marked


def label_weights(batch: Any, counts: jax.Array) -> jax.Array:
    """1 for each valid label: a class is not negative, and no label is padding's.

    Labels that are fractions, numbers or several classes, are valid in every row of tokens.

    Args:
      batch: has `labels`, or `start_positions` and `end_positions`.
      counts: above 0 for tokens, [B, L], or for a choice [B, A, L].

    Returns:
      Float32 [B]; for tags [B, L]; for starts and ends [B, 2].
    """
    rows_B = (counts > 0).any(axis=tuple(range(1, counts.ndim)))
    if "labels" not in batch:
        weighs = rows_B[:, None] & (_ends(batch) >= 0)
    elif jnp.issubdtype(batch["labels"].dtype, jnp.floating):
        weighs = rows_B
    elif batch["labels"].ndim > 1:
        weighs = (counts > 0) & (batch["labels"] >= 0)
    else:
        weighs = rows_B & (batch["labels"] >= 0)
    return weighs.astype(jnp.float32)


def example_weights(batch: Any, weights: jax.Array) -> jax.Array:
    """The weights of labels in the loss, whose mean is then weighted.

    Args:
      batch: may have `example_weights`, float32 [B], by which the labels of a row count, or of the
        shape of `weights`.
      weights: those of `label_weights`.

    Returns:
      Float32, of the shape of `weights`.
    """
    if "example_weights" not in batch:
        return weights
    of_rows = batch["example_weights"]
    return weights * of_rows.reshape(*of_rows.shape, *[1] * (weights.ndim - of_rows.ndim))


@declares("classes")
def classes(logits_BC: jax.Array, batch: Any, weights_B: jax.Array) -> tuple[Term, Metrics]:
    """Cross entropy of `labels`, int32 [B], as a mean over rows."""
    return _cross_entropy(logits_BC[:, None], batch["labels"][:, None], weights_B[:, None])


@declares("neighbours")
def pairs(logits_BC: jax.Array, batch: Any, weights_B: jax.Array) -> tuple[Term, Metrics]:
    """Like `classes`, for pairs of sentences: 0 where they are neighbours (BERT, section 3.1)."""
    return classes(logits_BC, batch, weights_B)


@declares("several")
def several(logits_BC: jax.Array, batch: Any, weights_B: jax.Array) -> tuple[Term, Metrics]:
    """Binary cross entropy of each of `labels`, float32 [B, C], as a mean over classes and rows.

    `accuracy` is the share of rows whose classes are all right.
    """
    labels_BC = batch["labels"]
    losses_BC = jax.nn.softplus(logits_BC) - labels_BC * logits_BC
    right_B = ((logits_BC > 0) == (labels_BC > 0.5)).all(axis=-1)
    weight = weights_B.sum()
    term = Term((losses_BC.mean(axis=-1) * weights_B).sum(), weight)
    return term, {"accuracy": ((right_B * weights_B).sum(), weight)}


@declares("numbers")
def numbers(logits_BC: jax.Array, batch: Any, weights_B: jax.Array) -> tuple[Term, Metrics]:
    """Squared error of `labels`, float32 [B], as a mean over rows (STS-B)."""
    error_B = jnp.square(logits_BC[:, 0] - batch["labels"])
    return Term((error_B * weights_B).sum(), weights_B.sum()), {}


@declares("tags")
def tags(logits_BLC: jax.Array, batch: Any, weights_BL: jax.Array) -> tuple[Term, Metrics]:
    """Cross entropy of `labels`, int32 [B, L], as a mean over labels that are not negative."""
    return _cross_entropy(logits_BLC, batch["labels"], weights_BL)


@declares("spans")
def spans(logits_BLC: jax.Array, batch: Any, weights_B2: jax.Array) -> tuple[Term, Metrics]:
    """Half the cross entropies of `start_positions` and `end_positions`, int32 [B]."""
    return _cross_entropy(logits_BLC.swapaxes(1, 2), _ends(batch), weights_B2)


def _ends(batch: Any) -> jax.Array:
    """The first and the last position of answers: int32 [B, 2]."""
    return jnp.stack([batch["start_positions"], batch["end_positions"]], axis=1)


def _cross_entropy(
    logits: jax.Array, labels: jax.Array, weights: jax.Array
) -> tuple[Term, Metrics]:
    """The loss term for labels and weights [B, n] and logits [B, n, C]."""
    sums = token_sums(logits, jnp.maximum(labels, 0), weights_BL=weights)
    weight = weights.sum()
    return Term(sums.cross_entropy, weight), {"accuracy": (sums.correct, weight)}

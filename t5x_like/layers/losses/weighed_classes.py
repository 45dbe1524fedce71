"""Cross entropy of classes or tags that count differently: by class, or by how sure a guess is.

Suffixes: B batch, n labels of a row, C classes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import token_sums
from t5x_like.layers.losses.label_losses import Metrics


@dataclasses.dataclass(frozen=True)
class WeighedClasses:
    """A `LabelLoss`: the weighted mean of the losses of labels; metrics count each label once.

    Attributes:
      form: "classes" or "tags".
      class_weights: the weight of each class; empty for 1.
      label_smoothing: the probability that is shared by the classes that are not named.
      focal_gamma: the power of 1 - p by which a label of probability p counts (Lin et al., 2017).

    Raises:
      ValueError: a number is out of its range.
    """

    form: str = "classes"
    class_weights: tuple[float, ...] = ()
    label_smoothing: float = 0.0
    focal_gamma: float = 0.0

    def __post_init__(self) -> None:
        if any(weight < 0 for weight in self.class_weights) or (
            self.class_weights and not sum(self.class_weights)
        ):
            raise ValueError(f"class weights are 0 or more, and not all 0: {self.class_weights}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing is from 0 to below 1, not {self.label_smoothing}")
        if self.focal_gamma < 0:
            raise ValueError(f"focal_gamma is 0 or more, not {self.focal_gamma}")

    def denominator(self, batch: Any, weights: jax.Array) -> jax.Array:
        """The sum of the weights of the labels' classes."""
        return self._weights(batch["labels"], weights).sum()

    def __call__(self, logits: jax.Array, batch: Any, weights: jax.Array) -> tuple[Term, Metrics]:
        """The term and metrics for logits [B, C] or [B, n, C], int32 `labels` and weights."""
        labels = batch["labels"]
        if labels.ndim == 1:
            logits, labels, weights = logits[:, None], labels[:, None], weights[:, None]
        weighed_Bn = self._weights(labels, weights)
        known_Bn = jnp.maximum(labels, 0)
        shares_BnC = jax.nn.softmax(logits.astype(jnp.float32))
        p_Bn = jnp.take_along_axis(shares_BnC, known_Bn[..., None], axis=-1)[..., 0]
        focus_Bn = (1.0 - p_Bn) ** self.focal_gamma if self.focal_gamma else 1.0
        sums = token_sums(
            logits, known_Bn, weights_BL=weighed_Bn * focus_Bn, label_smoothing=self.label_smoothing
        )
        plain = token_sums(logits, known_Bn, weights_BL=weights)
        metrics = {"accuracy": (plain.correct, weights.sum())}
        return Term(sums.cross_entropy, weighed_Bn.sum()), metrics

    def _weights(self, labels: jax.Array, weights: jax.Array) -> jax.Array:
        if not self.class_weights:
            return weights
        return weights * jnp.asarray(self.class_weights, jnp.float32)[jnp.maximum(labels, 0)]

"""Loss terms with their own denominators, and counts of a step, as metrics that add up.

Suffixes: B batch, L length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from t5x_like.core.parameters import is_multiplied, is_variable
from t5x_like.layers.attention import masks


class Term(NamedTuple):
    """One term of a loss, float32 [] each: its sum, its weight here, and its coefficient."""

    sum: jax.Array
    weight: jax.Array
    coefficient: float = 1.0


def combine(
    terms: Mapping[str, Term], weights: Mapping[str, jax.Array]
) -> tuple[jax.Array, dict[str, tuple[jax.Array, jax.Array]]]:
    """The loss, sum over terms of coefficient * sum / weight, and metrics.

    Args:
      terms: those of this batch, by name.
      weights: each term's denominator over the global batch, of which this may be a part.

    Returns:
      The scalar; `<name>_loss` of each term, and `loss`, a vector over the terms where there are
      several: each has its own denominator over batches, too (`protocols.metric_value`).
    """
    denominators = {name: at_least_one(weights[name]) for name in terms}
    scalar = sum(
        (term.coefficient * term.sum / denominators[name] for name, term in terms.items()),
        jnp.float32(0),
    )
    metrics = {f"{name}_loss": (term.sum, term.weight) for name, term in terms.items()}
    sums = [term.coefficient * term.sum for term in terms.values()]
    term_weights = [term.weight for term in terms.values()]
    single = len(terms) == 1
    loss = (sums[0], term_weights[0]) if single else (jnp.stack(sums), jnp.stack(term_weights))
    return scalar, {"loss": loss, **metrics}


def at_least_one(weight: jax.Array) -> jax.Array:
    """A denominator; 1 where all weights are 0, so that the mean is then 0."""
    return jnp.where(weight > 0, weight, 1.0)


def count(weights: jax.Array) -> jax.Array:
    """The number of weights above 0: float32 []."""
    return (weights > 0).sum().astype(jnp.float32)


def matrix_size(*modules: Any) -> float:
    """The number of elements in the matrices that each token is multiplied with.

    Parameters say whether they are such a matrix (`parameters.is_multiplied`).
    """
    leaves = jax.tree.leaves(modules, is_leaf=is_variable)
    return float(sum(leaf.size for leaf in leaves if is_variable(leaf) and is_multiplied(leaf)))


def step_flops(products: jax.Array) -> jax.Array:
    """Operations of a training step: two for a multiply-add, backward twice forward."""
    return 3.0 * 2.0 * products


def totals(*, share: jax.Array, **counted: jax.Array) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Metrics that count a whole batch, such as `tokens` and `flops`.

    Their weight is `share`, the batch's share of the loss's denominator: over the microbatches
    of a batch it adds up to 1, and the sums add up to the batch's.
    """
    return {name: (count, share) for name, count in counted.items()}


def encoder_products(
    layers: Any, counts_BL: jax.Array, *, num_layers: int, width: int, causal: bool = False
) -> jax.Array:
    """Multiply-adds of a stack that reads one sequence, float32 [].

    Args:
      layers: the modules that every token passes, each once.
      counts_BL: above 0 for tokens; tokens with equal numbers see each other.
      num_layers: how many layers attend.
      width: of all heads together.
      causal: whether keys after the query are hidden.
    """
    pairs = masks.visible_pairs(counts_BL, counts_BL, causal=causal)
    # Two products a pair: one with the keys, one with the values.
    return matrix_size(layers) * count(counts_BL) + 2.0 * width * num_layers * pairs

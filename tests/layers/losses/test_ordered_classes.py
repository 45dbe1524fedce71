"""Ordered classes: their probabilities, their loss and the class that is named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.layers.losses import ordered_classes

LOGITS = np.array([[2.0, -1.0, 0.5], [-3.0, 4.0, 1.0], [0.1, 0.2, 9.0], [80.0, 90.0, -70.0]])
LABELS = np.array([1, 0, 3, 2])


def test_the_loss_is_that_of_the_decisions_which_a_row_makes() -> None:
    p = 1 / (1 + np.exp(-LOGITS))
    losses = []
    for row, label in zip(p, LABELS, strict=True):
        # Above each class below its own, and not above its own: the highest has no such decision.
        losses.append(-np.log(row[:label]).sum() - (np.log(1 - row[label]) if label < 3 else 0))
    weights = np.array([1.0, 2.0, 0.5, 1.0])
    batch = {"labels": jnp.asarray(LABELS)}
    term, metrics = ordered_classes.ordered(jnp.asarray(LOGITS), batch, jnp.asarray(weights))
    np.testing.assert_allclose(term.sum, (losses * weights).sum(), rtol=1e-5)
    assert term.weight == 4.5
    assert metrics["accuracy"] == (4.0, 4.5)  # of the third row, 1 is named


def test_chances_to_be_above_a_class_fall_and_all_come_to_1() -> None:
    logits = jax.random.normal(jax.random.key(0), (50, 4)) * 5
    p = np.exp(ordered_classes.log_probabilities(logits))
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-5)
    above = 1 - p.cumsum(axis=-1)
    assert (np.diff(above, axis=-1) <= 1e-6).all()
    yes = np.cumprod(1 / (1 + np.exp(-np.asarray(logits, np.float64))), axis=-1)
    np.testing.assert_allclose(above[:, :-1], yes, atol=1e-5)
    medians = ordered_classes.medians(jnp.log(p))
    np.testing.assert_array_equal(medians, (yes > 0.5).sum(axis=-1))
    assert len({*medians.tolist()}) == 5


def test_the_median_is_not_always_the_likeliest() -> None:
    log_p = jnp.log(jnp.array([[0.4, 0.2, 0.4], [0.6, 0.2, 0.2], [0.2, 0.1, 0.7]]))
    np.testing.assert_array_equal(ordered_classes.medians(log_p), [1, 0, 2])


def test_a_padded_label_and_large_logits_have_finite_gradients() -> None:
    batch = {"labels": jnp.array([-1, 2])}

    def loss(logits: jax.Array) -> jax.Array:
        return ordered_classes.ordered(logits, batch, jnp.array([0.0, 1.0]))[0].sum

    gradient = jax.grad(loss)(jnp.array([[1e4, -1e4], [-1e4, 1e4]]))
    np.testing.assert_array_equal(gradient[0], 0)
    np.testing.assert_allclose(gradient[1], [-1, 0], atol=1e-6)

"""Held-out metrics are divided once, at the end."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.evaluation.evaluator import evaluate


def step(params, batch):
    weights = batch["weights"]
    return {
        "loss": (jnp.sum(params * batch["x"] * weights), jnp.sum(weights)),
        "never": (jnp.zeros(()), jnp.zeros(())),
    }


def test_mean_is_over_weights_not_over_batches() -> None:
    batches = [
        {"x": jnp.array([1.0, 2.0, 3.0]), "weights": jnp.array([1.0, 1.0, 1.0])},
        {"x": jnp.array([10.0, 99.0, 99.0]), "weights": jnp.array([1.0, 0.0, 0.0])},
    ]
    found = evaluate(step, 2.0, iter(batches))
    assert found["loss"] == pytest.approx(2 * (1 + 2 + 3 + 10) / 4)
    assert math.isnan(found["never"])


def test_small_batches_after_a_huge_one_are_not_lost() -> None:
    values = [2.0**24, *[1.0] * 64]
    batches = [{"x": jnp.array([v], jnp.float32), "weights": jnp.ones(1)} for v in values]
    found = evaluate(step, 1.0, batches)["loss"]
    assert found == float(np.sum(np.array(values, np.float64)) / 65)


def test_no_batches_no_metrics() -> None:
    assert evaluate(step, 1.0, []) == {}

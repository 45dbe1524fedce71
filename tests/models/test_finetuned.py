"""The loss of a body with a head, whatever the body is."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.abilities import LAST, States, Want
from t5x_like.layers.basics.dropout import dropout
from t5x_like.layers.heads import label_heads
from t5x_like.layers.losses import label_losses, ordered_classes, r_drop
from t5x_like.models.finetuned import FineTuned


class Table(nnx.Module):
    """A body that looks tokens up and drops some of what it finds."""

    padding = 0

    def __init__(self, rngs: nnx.Rngs, rate: float = 0.5) -> None:
        self.table = nnx.Param(rngs.params.normal((9, 4)))
        self.config = SimpleNamespace(d_model=4, dtype="float32")
        self.rate = rate

    def hidden(self, batch: Any, key: jax.Array | None = None, *, want: Want = LAST) -> States:
        assert want == LAST
        return States(dropout(self.table[batch["encoder_input_tokens"]], key, rate=self.rate))


NORMAL = nnx.initializers.normal(1.0)
HEAD = functools.partial(
    label_heads.SequenceHead, num_labels=3, pool=label_heads.first, dtype="float32", init=NORMAL
)
BATCH = {
    "encoder_input_tokens": jnp.array([[1, 2], [3, 0], [4, 5], [0, 0]]),
    "labels": jnp.array([0, 2, 1, 0]),
}


def head(d_model: int, dtype: Any, rngs: nnx.Rngs) -> nnx.Module:
    return HEAD(d_model, rngs=rngs)


def made(**settings: Any) -> FineTuned:
    return FineTuned(Table, head, rngs=nnx.Rngs(0), **settings)


def test_metrics_count_each_row_once_whatever_it_weighs() -> None:
    model = made()
    weights = np.array([2.0, 0.5, 0.0, 3.0])
    batch = BATCH | {"example_weights": jnp.asarray(weights)}
    plain = model.terms(BATCH, None, ())[1]
    terms, metrics, _ = model.terms(batch, None, ())
    assert metrics["accuracy"] == plain["accuracy"]
    assert metrics["accuracy"][1] == 3  # the last row is padding
    log_p = jax.nn.log_softmax(model.logits(batch))
    losses = -np.asarray(log_p)[range(4), BATCH["labels"]]
    np.testing.assert_allclose(terms["task"].sum, (losses * weights)[:3].sum(), rtol=1e-6)
    assert terms["task"].weight == model.weights(batch)["task"] == 2.5


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return (p * np.log(p / q)).sum(axis=-1)


@pytest.mark.parametrize("loss", [label_losses.classes, ordered_classes.ordered])
def test_r_drop_is_the_mean_loss_and_the_distance_of_two_answers(loss: Any) -> None:
    model = made(r_drop=0.7, label_loss=loss)
    weights = np.array([2.0, 0.5, 1.0])
    batch = BATCH | {"example_weights": jnp.asarray([*weights, 9.0])}
    key = jax.random.key(5)
    both = [model.logits(batch, k) for k in jax.random.split(key, 2)]
    p, q = (np.exp(np.asarray(model._log_probabilities(x), np.float64))[:3] for x in both)
    assert np.abs(p - q).max() > 0.05
    distance = (kl(p, q) + kl(q, p)) / 2
    losses = -np.log([x[range(3), BATCH["labels"][:3]] for x in (p, q)]).mean(axis=0)
    scalar, metrics, _ = model.loss(batch, key, (), model.weights(batch))
    want = [(x * weights).sum() / weights.sum() for x in (losses, distance)]
    np.testing.assert_allclose(scalar, want[0] + 0.7 * want[1], rtol=1e-5)
    for name, value in zip(("task_loss", "r_drop_loss"), want, strict=True):
        np.testing.assert_allclose(metrics[name][0] / metrics[name][1], value, rtol=1e-5)


def test_an_evaluation_and_a_model_without_r_drop_ask_once() -> None:
    evaluated = made(r_drop=0.7).loss(BATCH, None, (), made(r_drop=0.7).weights(BATCH))[1]
    plain = made().loss(BATCH, None, (), made().weights(BATCH))[1]
    assert {name: float(x[0]) for name, x in evaluated.items()} == {
        name: float(x[0]) for name, x in plain.items()
    }


def test_the_gradient_of_the_distance() -> None:
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.normal(size=(4, 3)), jnp.float32) for _ in range(2))

    def distance(a: jax.Array, b: jax.Array) -> jax.Array:
        return r_drop.divergence(jax.nn.log_softmax(a), jax.nn.log_softmax(b)).sum()

    got = jax.grad(distance, argnums=(0, 1))(a, b)
    p, q = (np.exp(np.asarray(jax.nn.log_softmax(x), np.float64)) for x in (a, b))
    # d KL(p || q) / d a = p * (log(p / q) - KL(p || q)), and d KL(q || p) / d a = p - q.
    for got_side, x, y in ((got[0], p, q), (got[1], q, p)):
        want = 0.5 * (x * (np.log(x / y) - kl(x, y)[:, None]) + x - y)
        np.testing.assert_allclose(got_side, want, rtol=1e-4, atol=1e-6)
    same = jax.grad(distance)(a, a)
    np.testing.assert_allclose(same, 0, atol=1e-7)


def test_alternatives_that_are_missing_do_not_count_in_the_distance() -> None:
    log_p, log_q = (jax.nn.log_softmax(jnp.array([[x, 0.5, -1e9]])) for x in (1.0, 2.0))
    two = [jax.nn.log_softmax(jnp.array([[x, 0.5]])) for x in (1.0, 2.0)]
    np.testing.assert_allclose(r_drop.divergence(log_p, log_q), r_drop.divergence(*two), rtol=1e-6)

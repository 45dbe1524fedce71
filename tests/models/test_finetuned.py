"""The loss of a body with a head, whatever the body is."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t5x_like.core.abilities import States
from t5x_like.layers.basics.dropout import dropout
from t5x_like.layers.heads import label_heads
from t5x_like.models.finetuned import FineTuned


class Table(nnx.Module):
    """A body that looks tokens up and drops some of what it finds."""

    padding = 0

    def __init__(self, rngs: nnx.Rngs, rate: float = 0.5) -> None:
        self.table = nnx.Param(rngs.params.normal((9, 4)))
        self.config = SimpleNamespace(d_model=4, dtype="float32")
        self.rate = rate

    def hidden(self, batch: Any, key: jax.Array | None = None) -> States:
        return States(dropout(self.table[batch["encoder_input_tokens"]], key, rate=self.rate))


HEAD = functools.partial(
    label_heads.SequenceHead, num_labels=3, pool=label_heads.first, dtype="float32"
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

"""The loss of rows of several tasks, whatever the body and the heads are."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from test_finetuned import Table

from t5x_like.core.protocols.tasks import of_task
from t5x_like.layers.heads import label_heads
from t5x_like.layers.losses import label_losses, ordered_classes
from t5x_like.models.multi_task import MultiTask, TaskHead

NORMAL = nnx.initializers.normal(1.0)
OF_TEXTS = functools.partial(label_heads.SequenceHead, pool=label_heads.first, init=NORMAL)
OF_TOKENS = functools.partial(label_heads.TokenHead, init=NORMAL)
HEADS = {
    "names": TaskHead(OF_TOKENS, 3, label_losses.tags),
    "sentiment": TaskHead(OF_TEXTS, 3, label_losses.classes),
    "size": TaskHead(OF_TEXTS, 3, ordered_classes.ordered),
    "stars": TaskHead(OF_TEXTS, 1, label_losses.numbers),
    "topics": TaskHead(OF_TEXTS, 2, label_losses.several),
}
LENGTH = 5


@pytest.fixture(scope="module")
def model() -> MultiTask:
    return MultiTask(functools.partial(Table, rate=0.0), HEADS, rngs=nnx.Rngs(0))


def batch(draw: np.random.Generator, tasks: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of these tasks; -1 is padding. Labels of other tasks are noise, which nothing reads."""
    rows = len(tasks)
    sizes = np.where(tasks < 0, 0, draw.integers(1, LENGTH + 1, rows))
    tokens = draw.integers(1, 9, (rows, LENGTH)) * (np.arange(LENGTH) < sizes[:, None])
    labels = {
        "names": draw.integers(-1, 3, (rows, LENGTH)) * (tokens > 0),
        "sentiment": draw.integers(0, 3, rows),
        "size": draw.integers(0, 4, rows),
        "stars": draw.normal(size=rows).astype(np.float32),
        "topics": draw.integers(0, 2, (rows, 2)).astype(np.float32),
    }
    weights = draw.uniform(0.5, 2, rows).astype(np.float32)
    return {
        "encoder_input_tokens": tokens,
        "encoder_attention_mask": (tokens > 0).astype(np.int32),
        "task": tasks,
        "sentiment/example_weights": weights,
        **{of_task(name, "labels"): values for name, values in labels.items()},
    }


def loss_of(model: Any, rows: Any, weights: Any = None) -> jax.Array:
    rows = jax.tree.map(jnp.asarray, rows)
    loss: jax.Array = model.loss(rows, None, (), weights or model.weights(rows))[0]
    return loss


def alone(rows: dict[str, np.ndarray], name: str, number: int) -> dict[str, np.ndarray]:
    """The rows of one task as a model of this task reads them."""
    of = rows["task"] == number
    own = {key.removeprefix(f"{name}/"): x for key, x in rows.items() if key.startswith(f"{name}/")}
    shared = {key: x for key, x in rows.items() if key.startswith("encoder_")}
    return {key: x[of] for key, x in {**shared, **own}.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_loss_is_that_of_each_task_alone_by_its_share_of_the_rows(
    seed: int, model: MultiTask
) -> None:
    draw = np.random.default_rng(seed)
    rows = batch(draw, draw.integers(-1 if seed else 0, len(HEADS), 24))
    graph, state = nnx.split(model)
    present = int((rows["task"] >= 0).sum())

    def apart(state: Any) -> jax.Array:
        model = nnx.merge(graph, state)
        losses = [
            loss_of(model.of_task(name), alone(rows, name, n)) * (rows["task"] == n).sum() / present
            for n, name in enumerate(HEADS)
            if (rows["task"] == n).any()
        ]
        return sum(losses, jnp.float32(0))

    together = jax.value_and_grad(lambda state: loss_of(nnx.merge(graph, state), rows))
    for ours, theirs in zip(
        jax.tree.leaves(together(state)),
        jax.tree.leaves(jax.value_and_grad(apart)(state)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_parts_of_a_batch_add_up_to_it(model: MultiTask) -> None:
    draw = np.random.default_rng(5)
    rows = batch(draw, np.array([0, 0, 1, 1, 1, 2, 3, 4, -1, 0, 3, 1]))
    weights = model.weights(jax.tree.map(jnp.asarray, rows))
    parts = [{name: x[n::2] for name, x in rows.items()} for n in range(2)]
    losses = [loss_of(model, part, weights) for part in parts]
    np.testing.assert_allclose(sum(losses), loss_of(model, rows), rtol=1e-6)


def test_metrics_of_a_task_are_those_of_its_rows(model: MultiTask) -> None:
    draw = np.random.default_rng(6)
    rows = batch(draw, np.array([1, 3, 1, 4, 1, -1]))
    metrics = model.terms(jax.tree.map(jnp.asarray, rows), None, ())[1]
    (of_one,) = [model.of_task("sentiment").terms(alone(rows, "sentiment", 1), None, ())[1]]
    assert metrics["sentiment/accuracy"] == of_one["accuracy"]
    assert metrics["sentiment/accuracy"][1] == 3
    assert metrics["names/loss"] == (0, 0)


def test_an_unknown_head_is_named_with_the_others(model: MultiTask) -> None:
    with pytest.raises(ValueError, match="no head 'star': the heads are names, sentiment, size"):
        model.of_task("star")

"""AWD-LSTM: published sizes, its loss, a state that is carried, and what its dropouts drop."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.abilities import Want
from t5x_like.models.awd_lstm import AwdLstm, Config
from t5x_like.training.optimization import layerwise
from t5x_like.training.optimization.parameter_paths import by_path

STILL = {
    f"{name}_dropout_rate": 0.0 for name in ("embedding", "input", "hidden", "output", "weight")
}
SMALL = Config(vocab_size=50, d_embedding=8, cells=12, **STILL)


@pytest.mark.parametrize(
    ("sizes", "parameters"),
    [
        ({}, 44_272_402),
        ({"cells": 1152}, 44_334_082),
        ({"vocab_size": 33278}, 33_556_078),
        ({"vocab_size": 33278, "cells": 1152}, 33_617_758),
    ],
)
def test_parameters_are_those_of_ulmfit(sizes, parameters):
    model = nnx.eval_shape(lambda: AwdLstm(Config(**sizes), rngs=nnx.Rngs(0)))
    leaves = jax.tree.leaves(nnx.state(model, nnx.Param))
    assert sum(math.prod(leaf.shape) for leaf in leaves) == parameters


def rows(length, seed=0):
    tokens = np.random.default_rng(seed).integers(0, 50, (2, length + 1))
    return {
        "decoder_input_tokens": jnp.asarray(tokens[:, :-1], jnp.int32),
        "decoder_target_tokens": jnp.asarray(tokens[:, 1:], jnp.int32),
        "decoder_loss_weights": jnp.ones((2, length)),
    }


def part(batch, where):
    return {name: x[:, where] for name, x in batch.items()}


def test_a_state_goes_on_from_step_to_step_over_padding_and_up_to_a_document():
    model, batch = AwdLstm(SMALL, rngs=nnx.Rngs(0)), rows(16)

    def read(batch, carry):
        return model._read(batch, None, carry)

    whole = read(batch, model.initial_carry(2))
    first = part(batch, slice(10)) | {"decoder_loss_weights": jnp.ones((2, 10)).at[:, 7:].set(0)}
    middle = read(first, model.initial_carry(2))
    rest = read(part(batch, slice(7, None)), middle.states)
    np.testing.assert_allclose(rest.last, whole.last[:, 7:], atol=1e-6)
    np.testing.assert_allclose(rest.states[-1].cells, whole.states[-1].cells, atol=1e-6)
    starts = jnp.zeros((2, 16), jnp.int32).at[:, 7].set(1)
    again = read(batch | {"decoder_document_starts": starts}, model.initial_carry(2))
    alone = read(part(batch, slice(7, None)), model.initial_carry(2))
    np.testing.assert_allclose(again.last[:, 7:], alone.last, atol=1e-6)


def test_the_loss_at_first_and_its_penalties():
    model, batch = AwdLstm(SMALL, rngs=nnx.Rngs(0)), rows(9)
    carry, weights = model.initial_carry(2), model.weights(batch)
    loss, metrics, _ = model.loss(batch, None, carry, weights)
    assert loss == pytest.approx(math.log(50), rel=1e-2)
    assert "activation_penalty" not in metrics
    trained, _, _ = model.loss(batch, jax.random.key(0), carry, weights)
    last = model._read(batch, None, carry).last
    large, changes = jnp.square(last).mean(), jnp.square(jnp.diff(last, axis=1)).mean()
    assert trained == pytest.approx(float(loss + 2 * large + changes), rel=1e-5)
    (gradient,) = jax.tree.leaves(
        jax.grad(lambda model: model.loss(batch, None, carry, weights)[0])(model).output_bias
    )
    assert jnp.abs(gradient).max() > 0


def dropped(rate, key, **changes):
    """What the model reads and gives with one kind of dropout, and without."""
    model = AwdLstm(dataclasses.replace(SMALL, **changes), rngs=nnx.Rngs(0))
    batch = rows(200)
    return (model._read(batch, k, model.initial_carry(2)) for k in (key, None))


def test_outputs_are_dropped_for_all_tokens_of_a_row():
    read, clean = dropped(0.5, jax.random.key(1), output_dropout_rate=0.5)
    zero = np.asarray(read.dropped == 0)
    assert (zero.all(axis=1) == zero.any(axis=1)).all()
    assert 0 < zero.any(axis=1).mean() < 1
    kept = ~zero
    np.testing.assert_allclose(read.dropped[kept], 2 * clean.last[kept], rtol=1e-4)


def test_a_token_is_dropped_everywhere_and_as_often_as_the_rate_says():
    model = AwdLstm(dataclasses.replace(SMALL, embedding_dropout_rate=0.3), rngs=nnx.Rngs(0))
    batch = rows(1) | {
        "decoder_input_tokens": jnp.arange(50, dtype=jnp.int32)[:, None],
        "decoder_loss_weights": jnp.ones((50, 1)),
    }
    empty = model.embedding.table[...].at[:].set(0)
    states = []
    for seed in range(60):
        outputs = model._read(batch, jax.random.key(seed), model.initial_carry(50)).last[:, 0]
        states.append(np.asarray(outputs))
    model.embedding.table[...] = empty
    nothing = np.asarray(model._read(batch, None, model.initial_carry(50)).last[:, 0])
    gone = np.abs(np.stack(states) - nothing).max(axis=-1) < 1e-7
    assert abs(gone.mean() - 0.3) < 5 * (0.3 * 0.7 / gone.size) ** 0.5


def test_weights_are_dropped_once_a_step():
    one, other = (
        next(iter(dropped(0.5, jax.random.key(seed), weight_dropout_rate=0.5))).last
        for seed in (0, 1)
    )
    # The first token reads no weight from state to state; rows of a step share what is dropped.
    np.testing.assert_allclose(one[:, 0], other[:, 0], atol=1e-6)
    assert jnp.abs(one[:, 5:] - other[:, 5:]).max() > 1e-4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cells": 0}, "cells must be at least 1"),
        ({"weight_dropout_rate": 1.0}, r"in \[0, 1\)"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)


def test_rates_fall_from_layer_to_layer():
    """ULMFiT, section 3.2: each layer has the rate of the next one, divided by 2.6."""
    params = nnx.state(AwdLstm(SMALL, rngs=nnx.Rngs(0)), nnx.Param)
    shapes = nnx.to_pure_dict(params)
    unstacked = jax.tree.map(lambda _: 0, shapes)
    depths = layerwise.depths(params)
    scales = by_path(layerwise.layer_scales(shapes, unstacked, depths, decay=1 / 2.6))
    assert scales["output_bias"] == 1
    for n in range(3):
        assert scales[f"layers.{n}.recurrent"] == pytest.approx(2.6 ** (n - 3))
        assert scales[f"layers.{n}.recurrent_bias"] == pytest.approx(2.6 ** (n - 3))
    assert scales["embedding.table"] == pytest.approx(2.6**-4)


def test_states_of_all_layers_are_those_of_a_text():
    model, batch = AwdLstm(SMALL, rngs=nnx.Rngs(0)), rows(9)
    mask = jnp.ones((2, 9), jnp.int32).at[1, 5:].set(0)
    read = {"encoder_input_tokens": batch["decoder_input_tokens"], "encoder_attention_mask": mask}
    found = model.states(read, want=Want(states=True))
    assert found.states.shape == (4, 2, 9, 12)
    np.testing.assert_array_equal(found.states[-1, ..., :8], found.last)
    table = model.embedding.table[...][batch["decoder_input_tokens"]]
    np.testing.assert_array_equal(found.states[0], np.pad(table, [(0, 0), (0, 0), (0, 4)]))
    here = mask[..., None]
    np.testing.assert_allclose(found.last * here, model.hidden(batch).last * here, atol=1e-6)

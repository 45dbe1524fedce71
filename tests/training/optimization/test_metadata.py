"""Optimizers and counts read metadata of parameters: the names of a new family do not matter."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from t5x_like.core.partitioning import map_parameters
from t5x_like.layers.basics import depth
from t5x_like.layers.basics.modules import ONES, param
from t5x_like.layers.losses import accounting
from t5x_like.training.optimization import layerwise, optimizers, weight_decay
from t5x_like.training.optimization.parameter_paths import by_path


class Lstm(nnx.Module):
    """A layer of a language model as a stranger names its parts."""

    def __init__(self, width: int, hidden: int, rngs: nnx.Rngs) -> None:
        make = functools.partial(param, ONES, rngs=rngs)
        self.input = make((width, 4 * hidden), axes=("embed", "mlp"))
        self.recurrent = make((hidden, 4 * hidden), axes=("embed", "mlp"))
        self.forget_bias = make((hidden,), axes=(None,))
        self.peephole = make((hidden,), axes=(None,), decayed=True)


class Lstms(nnx.Module):
    """Layers of 2, 3, 3 and 2 units: the two of one size are stacked."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.table = depth.below(
            param(ONES, (5, 2), axes=("vocab", "embed"), multiplied=False, rngs=rngs)
        )
        self.first = depth.at(Lstm(2, 3, rngs), 0, of=4)
        middle = jax.vmap(lambda key: Lstm(3, 3, nnx.Rngs(key)))(jax.random.split(rngs(), 2))
        self.middle = depth.at(middle, 1, of=4)
        self.last = depth.at(Lstm(3, 2, rngs), 3, of=4)


@pytest.fixture(scope="module")
def model() -> Lstms:
    return Lstms(nnx.Rngs(0))


def test_matrices_are_counted_and_tables_are_not(model: Lstms) -> None:
    layers = [(2 + 3) * 12, 2 * (3 + 3) * 12, (3 + 2) * 8]
    assert accounting.matrix_size(model) == sum(layers)


@pytest.mark.parametrize(
    "optimizer",
    [optimizers.adamw(0.1), optax.adamw(0.1, mask=weight_decay.decay_mask)],
    ids=["ours", "a user's"],
)
def test_decay_is_as_the_parameters_say(model: Lstms, optimizer: Any) -> None:
    """Through what a step wraps an optimizer in, for stacked and single layers alike."""
    state = nnx.state(model, nnx.Param)
    params = nnx.to_pure_dict(state)
    stacked = map_parameters(lambda axes, shape: len(shape) - len(axes), state)
    tx = layerwise.layerwise(weight_decay.with_decay_of(optimizer, state), stacked)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = jax.jit(tx.update)(zeros, jax.jit(tx.init)(params), params)
    moved = {path for path, u in by_path(updates).items() if (u != 0).any()}
    assert moved == {path for path in by_path(params) if not path.endswith("forget_bias")}


def test_rates_fall_over_layers_of_any_size(model: Lstms) -> None:
    state = nnx.state(model, nnx.Param)
    shapes = nnx.to_pure_dict(state)
    stacked = map_parameters(lambda axes, shape: len(shape) - len(axes), state)
    marks = layerwise.depths(state)
    scales = by_path(layerwise.layer_scales(shapes, stacked, marks, decay=0.5))
    wanted = {"table": 0.5**5, "first": 0.5**4, "middle": [0.5**3, 0.5**2], "last": 0.5}
    for path, scale in scales.items():
        np.testing.assert_array_equal(np.ravel(scale), wanted[path.split(".")[0]], err_msg=path)


def test_more_layers_than_a_mark_has_are_refused(model: Lstms) -> None:
    with pytest.raises(ValueError, match="of 2 layers, counted from 0, none is layer 2"):
        depth.at(Lstm(1, 1, nnx.Rngs(0)), 2, of=2)
    state = nnx.state(depth.at(Lstms(nnx.Rngs(0)).middle, 1, of=2), nnx.Param)
    stacked = map_parameters(lambda axes, shape: 1, state)
    shapes, marks = nnx.to_pure_dict(state), layerwise.depths(state)
    with pytest.raises(ValueError, match="2 stacked layers from layer 1 on"):
        layerwise.layer_scales(shapes, stacked, marks, decay=0.5)

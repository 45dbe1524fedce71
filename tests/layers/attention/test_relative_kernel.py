"""The kernel of relative attention, run as plain JAX, against the usual way: values and gradients.

Two rows of 5 or 16 positions, or of 130, which take two blocks of queries.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from t5x_like.core.counter_random import COUNTER
from t5x_like.core.partitioning import make_layout
from t5x_like.layers.attention import relative_attention
from t5x_like.layers.attention.attention_kernels import plain
from t5x_like.layers.attention.kernel_choice import automatic, forming_probabilities
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.relative_attention import (
    Biases,
    RelativeAttention,
    RelativeView,
    relative_positions,
)
from t5x_like.layers.basics.dropout import Dropouts

CASES: dict[str, dict[str, Any]] = {
    # All that XLNet's pretraining has; the first query sees nothing.
    "the row": {
        "length": 16,
        "memory": 4,
        "backward": [True, False],
        "sees": "some",
        "segments": True,
        "drop": 0.2,
    },
    "predicted positions": {
        "memory": 4,
        "backward": [False, True],
        "sees": "some",
        "segments": True,
        "at": [[4, 0, 2], [1, 1, 3]],
        "drop": 0.2,
    },
    # As many keys as blocks of lanes hold, and one head that fills a block.
    "two blocks of queries": {
        "length": 130,
        "memory": 126,
        "heads": 1,
        "width": 128,
        "sees": "some",
        "drop": 0.2,
    },
    "far predicted positions": {
        "length": 130,
        "heads": 2,
        "segments": True,
        "at": [[129, 0, 128], [127, 1, 3]],
        "clamp": 3,
    },
    "nothing but positions": {"heads": 3, "backward": [True, False]},
}


def case(name: str) -> tuple[RelativeAttention, Biases, Any]:
    """Attention, its biases, and the arguments of `look_and_weigh`."""
    given = {"length": 5, "drop": 0.0, "memory": 0, "heads": 4, "width": 64} | CASES[name]
    heads, width, length, keys = (given[x] for x in ("heads", "width", "length", "memory"))
    keys += length
    rngs, init = nnx.Rngs(0), nnx.initializers.normal(0.5)
    attention = RelativeAttention(
        heads * width, heads, init=init, dtype=jnp.float32, kernel=automatic, rngs=rngs
    )
    attention.relative.kernel[...] *= 0.2 / np.sqrt(heads)
    biases = Biases(heads, width, init=init, rngs=rngs)
    at = None if "at" not in given else jnp.array(given["at"])
    queries = length if at is None else at.shape[1]
    draw = functools.partial(jax.random.normal, jax.random.key(1))
    # The queries of the other stream follow.
    q, *memory = (
        draw((2, n, heads, width)) * (i + 1) for i, n in enumerate((queries + 3, keys, keys))
    )
    pairs = (2, 1, queries, keys)
    mask, types = None, None
    if "sees" in given:
        mask = Mask(pairs=(draw(pairs) > -0.3).at[:, :, 0].set(False))
    if "segments" in given:
        types = draw((2, queries)) > 0.4, draw((2, keys)) > 0.4
    backward = jnp.array(given["backward"]) if "backward" in given else None
    positions = relative_positions(
        length, keys, width=heads * width, backward_B=backward, clamp=given.get("clamp")
    )
    view = RelativeView(mask=mask, types=types, asking=at, relative=positions)
    return attention, biases, (q, memory, view, given["drop"])


def found(attention: RelativeAttention, biases: Biases, given: Any) -> Any:
    """The values, and the gradients of a sum that weighs them unequally."""
    q, memory, view, rate = given
    dropouts, key = Dropouts(attention=rate), jax.random.key(3, impl=COUNTER)

    def weighed(attention: Any, biases: Any, q: Any, memory: Any) -> Any:
        values, _ = attention.look(
            q.reshape(*q.shape[:2], -1),
            relative_attention.KeysValues(*memory),
            part=slice(q.shape[1] - 3),
            position_keys=attention.position_keys(view.relative, len(q)),
            biases=biases,
            view=view,
            dropouts=dropouts,
            key=key,
        )
        weights = jnp.cos(jnp.arange(values.size)).reshape(values.shape)
        return (values * weights).sum(), values

    grads, values = nnx.jit(nnx.grad(weighed, argnums=(0, 1, 2, 3), has_aux=True))(
        attention, biases, q, memory
    )
    return values, grads


@pytest.fixture
def on_tpu(interpreted_in: Callable[[ModuleType], list[int]]) -> list[int]:
    return interpreted_in(relative_attention)


def assert_close(got: Any, want: Any) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * max(1, float(jnp.abs(b).max())))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_equals_the_usual_way(name: str, on_tpu: list[int]) -> None:
    """Dropout too: the same key draws the same numbers."""
    attention, biases, given = case(name)
    got = found(attention, biases, given)
    assert on_tpu == [1]
    attention.kernel = plain
    want = found(attention, biases, given)
    assert on_tpu == [1]
    assert_close(got, want)
    assert all(float(jnp.abs(x).max()) > 0 for x in jax.tree.leaves(got[0]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("the row", {"data": 2, "tensor": 2}),
        ("predicted positions", {"data": 2, "tensor": 2}),
        ("the row", {"tensor": 2}),
        ("the row", {"data": 2, "sequence": 2, "tensor": 2}),
        ("two blocks of queries", {"sequence": 2}),
        ("predicted positions", {"sequence": 3}),
        ("nothing but positions", {"sequence": 4}),
    ],
    ids=str,
)
def test_on_a_mesh_it_is_the_same(name: str, mesh: dict[str, int], on_tpu: list[int]) -> None:
    """Where queries are split, each device has its own; 5 are not, though 8 of both streams are."""
    attention, biases, given = case(name)
    want = found(attention, biases, given)
    count = math.prod(mesh.values())
    with make_layout(mesh, devices=jax.devices()[:count]).active():
        got = found(attention, biases, given)
    assert len(on_tpu) == 2
    assert_close(got, want)


def test_where_probabilities_are_wanted_they_are_formed(on_tpu: list[int]) -> None:
    attention, biases, given = case("nothing but positions")
    with forming_probabilities(True):
        found(attention, biases, given)
    assert not on_tpu

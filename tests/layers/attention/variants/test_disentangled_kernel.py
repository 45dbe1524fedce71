"""Disentangled attention by the kernel for TPUs, run as plain JAX, against the usual way."""

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
from t5x_like.layers.attention.attention_kernels import plain
from t5x_like.layers.attention.kernel_choice import automatic, forming_probabilities
from t5x_like.layers.attention.kernels.key_shift import KeyWindows
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.variants import disentangled
from t5x_like.layers.attention.variants.disentangled import (
    DisentangledAttention,
    DisentangledView,
    EachDistance,
    LogBuckets,
)
from t5x_like.layers.basics.dropout import Dropouts

LENGTH = 16
SEGMENTS = jnp.array([[1] * 9 + [2] * 7, [1] * 13 + [0] * 3])
"""Of two rows; 0 is padding."""

CASES: dict[str, dict[str, Any]] = {
    # Two heads fill a block of lanes; the last queries of the second row see nothing.
    "packed rows": {"packed": True, "heads": 2, "width": 64},
    # The decoder's; distances have matrices of their own.
    "positions that ask": {"at": [[4, 0, 15], [1, 1, 3]], "shared": False},
}


def case(name: str) -> tuple[DisentangledAttention, Any]:
    """Attention, and the arguments of `found`."""
    given = {"packed": False, "heads": 1, "width": 128, "at": None, "shared": True} | CASES[name]
    d_model = given["heads"] * given["width"]
    shared, at = given["shared"], given["at"]
    attention = DisentangledAttention(
        d_model,
        given["heads"],
        rows=LogBuckets(4, 12) if shared else EachDistance(8),
        shared=shared,
        init=nnx.initializers.normal(0.1),
        kernel=automatic,
        dtype=jnp.float32,
        rngs=nnx.Rngs(0),
    )
    at = None if at is None else jnp.array(at)
    queries, keys = Traits(), Traits()
    if given["packed"]:
        queries = keys = Traits(segments=SEGMENTS)
    mask = Mask(present=SEGMENTS, queries=queries, keys=keys)
    draw = functools.partial(jax.random.normal, jax.random.key(1))
    x = draw((2, LENGTH if at is None else at.shape[1], d_model))
    table = draw((8 if shared else 16, d_model))
    return attention, (x, draw((2, LENGTH, d_model)) * 2, table, mask, at)


def found(attention: DisentangledAttention, given: Any) -> Any:
    """What attention returns, and the gradients of a sum that weighs it unequally."""
    *arrays, mask, at = given

    def weighed(attention: Any, x: Any, states: Any, table: Any) -> Any:
        y, _ = attention(
            x,
            attention.keys_values(states),
            view=DisentangledView(mask=mask, distances=table, asking=at),
            dropouts=Dropouts(attention=0.2),
            key=jax.random.key(3, impl=COUNTER),
        )
        return (y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum(), y

    differentiate = nnx.grad(weighed, argnums=(0, 1, 2, 3), has_aux=True)
    grads, y = nnx.jit(differentiate)(attention, *arrays)
    return y, grads


@pytest.fixture
def on_tpu(interpreted_in: Callable[[ModuleType], list[int]]) -> list[int]:
    return interpreted_in(disentangled)


def assert_close(got: Any, want: Any) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * max(1, float(jnp.abs(b).max())))


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("packed rows", {}),
        ("packed rows", {"data": 2, "sequence": 2}),
        ("positions that ask", {"data": 2}),
    ],
    ids=str,
)
def test_it_equals_the_usual_way(name: str, mesh: dict[str, int], on_tpu: list[int]) -> None:
    """Dropout too: the same key draws the same numbers. Without a mesh and on one."""
    attention, given = case(name)
    devices = jax.devices()[: math.prod(mesh.values())]
    with make_layout(mesh or {"data": 1}, devices=devices).active():
        got = found(attention, given)
    assert on_tpu == [1]
    attention.kernel = plain
    want = found(attention, given)
    assert on_tpu == [1]
    assert_close(got, want)
    assert all(float(jnp.abs(x).max()) > 0 for x in jax.tree.leaves(got[1]))


def test_where_probabilities_are_wanted_they_are_formed(on_tpu: list[int]) -> None:
    attention, given = case("packed rows")
    with forming_probabilities(True):
        nnx.eval_shape(lambda attention: found(attention, given), attention)
    assert not on_tpu


@pytest.mark.parametrize(
    ("first", "queries", "positions"), [(128, 16, None), (0, 136, [[129], [3], [3]])], ids=str
)
def test_keys_windows_are_by_distance(first: int, queries: int, positions: Any) -> None:
    """In two blocks of keys; `to_blocks` is the transpose of `to_pairs`."""
    keys, at = 256, None if positions is None else jnp.array(positions)
    asking = queries - 3 if at is None else len(at)
    windows = KeyWindows(first, -(-queries // 8) * 8, asking, at, keys)
    table = np.random.default_rng(0).normal(size=(2 * keys, keys)).astype(np.float32)
    blocks = [jnp.array(table[rows, lanes]) for lanes, rows in windows.blocks()]
    places = np.arange(first, first + asking) if at is None else np.array(positions)[:, 0]
    key = np.arange(keys)
    index = places[:, None] - key + keys - 1, np.broadcast_to(key, (asking, keys))
    np.testing.assert_array_equal(windows.to_pairs(blocks), table[index])
    g, sums = np.cos(np.arange(asking * keys)).reshape(asking, keys), np.zeros(table.shape)
    np.add.at(sums, index, g)
    moved = windows.to_blocks(jnp.array(g, jnp.float32), jnp.float32)
    for (lanes, rows), x in zip(windows.blocks(), moved, strict=True):
        np.testing.assert_allclose(x, sums[rows, lanes], atol=1e-6)

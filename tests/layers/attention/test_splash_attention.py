"""Splash attention, run as plain JAX, against `plain`: masks, gradients, meshes."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.core.counter_random import COUNTER
from t5x_like.core.partitioning import make_layout
from t5x_like.layers.attention.attention_kernels import Kernel, KeysValues, plain
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.splash_attention import splash, unsuited
from t5x_like.layers.basics.dropout import Dropping

ROWS, LENGTH, HEADS, WIDTH = 2, 640, 2, 64
"""Five blocks of queries and five of keys."""
PRESENT = jnp.arange(LENGTH)[None] < jnp.array([[LENGTH], [600]])
SEGMENTS = Traits(
    segments=jnp.array([[1] * 300 + [2] * 340, [1] * 90 + [2] * 510 + [0] * 40]),
    positions=jnp.array([[*range(300), *range(340)], [*range(90), *range(550)]]),
)
MASKS: dict[str, Mask | None] = {
    "nothing hidden": None,
    "padding, causal": Mask(present=PRESENT, causal=True),
    "packed": Mask(present=PRESENT, queries=SEGMENTS, keys=SEGMENTS),
    "packed, through a window": Mask(window=(200, 70), queries=SEGMENTS, keys=SEGMENTS),
}


def values_and_gradients(kernel: Kernel, mask: Mask | None, length: int = LENGTH) -> Any:
    """The values, and the gradients of a sum that weighs them unequally; padding has no weight."""
    shape = (ROWS, length, HEADS, WIDTH)
    q, k, v, weights = (
        jax.random.normal(key, shape) for key in jax.random.split(jax.random.key(0), 4)
    )
    weights *= PRESENT[:, :length, None, None]

    def weighed(given: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
        values = kernel(given[0], KeysValues(*given[1:]), mask=mask, bias=None, drop=None).values
        return (values * weights).sum(), values * (weights != 0)

    return jax.jit(jax.grad(weighed, has_aux=True))([q * WIDTH**-0.5, k, v])


@pytest.mark.parametrize(
    ("mask", "length"),
    [*((mask, LENGTH) for mask in MASKS.values()), (None, 300), (Mask(causal=True), 500)],
    ids=[*MASKS, "no whole blocks", "no whole blocks, causal"],
)
def test_it_equals_plain(mask: Mask | None, length: int) -> None:
    want = values_and_gradients(plain, mask, length)
    got = values_and_gradients(functools.partial(splash, interpret=True), mask, length)
    for ours, usual in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(ours, usual, rtol=2e-5, atol=2e-5)


def test_devices_share_rows_and_heads() -> None:
    mask = MASKS["packed"]
    want = values_and_gradients(plain, mask)
    with make_layout({"data": 2, "tensor": 2}, devices=jax.devices()[:4]).active():
        got = values_and_gradients(functools.partial(splash, interpret=True), mask)
    for ours, usual in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(ours, usual, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"bias": jnp.zeros((1, 2, LENGTH, LENGTH))}, "no biases"),
        ({"drop": Dropping(jax.random.key(0, impl=COUNTER), 0.1, False)}, "no dropout"),
        ({"mask": Mask(itself=True)}, "alone"),
        ({"mask": Mask(queries=Traits(chosen=PRESENT), keys=Traits(chosen=PRESENT))}, "alone"),
        ({"mask": Mask(window=(4, 4), dilation=2)}, "places"),
        ({"mask": Mask(causal=True, queries=Traits(positions=jnp.arange(LENGTH)))}, "places"),
    ],
)
def test_what_it_cannot_compute_is_refused(change: dict[str, Any], why: str) -> None:
    q = jax.ShapeDtypeStruct((ROWS, LENGTH, HEADS, WIDTH), jnp.float32)
    case = {"mask": None, "bias": None, "drop": None} | change
    assert why in str(unsuited(q, KeysValues(q, q), **case))
    with pytest.raises(ValueError, match="attention of long rows"):
        splash(q, KeysValues(q, q), **case)


def test_queries_on_several_devices_are_refused() -> None:
    q = jax.ShapeDtypeStruct((ROWS, LENGTH, HEADS, WIDTH), jnp.float32)
    with make_layout({"data": 1, "sequence": 2}, devices=jax.devices()[:2]).active():
        assert "several devices" in str(
            unsuited(q, KeysValues(q, q), mask=None, bias=None, drop=None)
        )

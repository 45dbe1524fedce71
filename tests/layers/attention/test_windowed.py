"""Windows that are computed block by block against `plain`, which forms every pair."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.core.counter_random import COUNTER
from t5x_like.layers.attention.attention_kernels import KeysValues, plain
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.windowed import windowed
from t5x_like.layers.basics.dropout import Dropping

LENGTH = 43
PRESENT = jnp.arange(LENGTH) < jnp.array([[LENGTH], [29]])
SEGMENTS = jnp.array([[1] * 13 + [2] * 30, [1] * 20 + [2] * 9 + [0] * 14])
# Positions begin again in each document.
PACKED = Traits(
    segments=SEGMENTS,
    positions=jnp.array([[*range(13), *range(30)], [*range(20), *range(9), *[0] * 14]]),
)
CHOSEN = Traits(chosen=jnp.zeros((2, LENGTH), bool).at[0, jnp.array([0, 20, 21])].set(True))
DROP = Dropping(jax.random.key(5, impl=COUNTER), 0.3, False)

CASES: dict[str, dict[str, Any]] = {
    "two sides": {"mask": Mask(window=(5, 3))},
    "padding": {"mask": Mask(present=PRESENT, window=(4, 4))},
    "causal, dropout": {"mask": Mask(causal=True, window=(9, 9)), "drop": DROP},
    "dropout that queries share": {
        "mask": Mask(window=(0, 6)),
        "drop": DROP._replace(shared=True),
    },
    "packed": {"mask": Mask(present=SEGMENTS, window=(6, 6), queries=PACKED, keys=PACKED)},
    "dilated": {"mask": Mask(window=(2, 3), dilation=3)},
    "a bias": {"mask": Mask(window=(3, 2)), "bias": (1, 2, LENGTH, LENGTH), "drop": DROP},
    "wider than the row": {"mask": Mask(window=(60, 0))},
    "chosen": {
        "mask": Mask(present=PRESENT, window=(3, 3), queries=CHOSEN, keys=CHOSEN, most_chosen=4)
    },
    "chosen keys alone, dropout": {
        "mask": Mask(present=PRESENT, window=(3, 3), keys=CHOSEN, most_chosen=4),
        "drop": DROP,
    },
    "chosen queries alone": {"mask": Mask(window=(3, 3), queries=CHOSEN, most_chosen=3)},
    "chosen, causal, dilated": {
        "mask": Mask(
            causal=True, window=(2, 2), dilation=2, queries=CHOSEN, keys=CHOSEN, most_chosen=3
        )
    },
}


def values_and_gradients(kernel: Any, case: dict[str, Any]) -> Any:
    """Of queries, keys, values and a bias, for a sum that weighs the values of tokens."""
    keys = jax.random.split(jax.random.key(0), 4)
    given = [jax.random.normal(key, (2, LENGTH, 2, 8)) for key in keys[:3]]
    if "bias" in case:
        given.append(jax.random.normal(keys[3], case["bias"]))
    mask = case["mask"]
    # A query that is padding may see nothing: it has a mean of some values.
    counts = jnp.ones((2, LENGTH)) if mask.present is None else mask.present > 0

    def weighed(given: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
        q, k, v, *bias = given
        values = kernel(
            q, KeysValues(k, v), mask=mask, bias=bias[0] if bias else None, drop=case.get("drop")
        ).values
        values = jnp.where(counts[..., None, None], values, 0.0)
        return (values * jnp.cos(jnp.arange(values.size)).reshape(values.shape)).sum(), values

    return jax.jit(jax.grad(weighed, has_aux=True))(given)


@pytest.mark.parametrize("name", CASES)
def test_it_equals_plain(name: str) -> None:
    want = values_and_gradients(plain, CASES[name])
    got = values_and_gradients(functools.partial(windowed, block=8), CASES[name])
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5)


def run(mask: Mask, **more: Any) -> jax.Array:
    x = jnp.ones((2, LENGTH, 2, 8))
    return windowed(x, KeysValues(x, x), mask=mask, bias=None, drop=None, **more).values


def test_more_chosen_positions_than_promised_show() -> None:
    values = run(Mask(window=(1, 1), queries=CHOSEN, keys=CHOSEN, most_chosen=2))
    assert np.isnan(values[0]).all()
    assert np.isfinite(values[1]).all()


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        (Mask(causal=True), "there is no window"),
        (Mask(window=(1, 1), pairs=jnp.ones((LENGTH, LENGTH), bool)), "condition for each pair"),
        (Mask(window=(1, 1), keys=Traits(positions=jnp.arange(LENGTH))), "without segments"),
        (Mask(window=(1, 1), keys=CHOSEN), "most_chosen does not say"),
    ],
)
def test_the_rest_is_refused(mask: Mask, reason: str) -> None:
    with pytest.raises(ValueError, match=f"{reason}.*attention_kernels.blocked"):
        run(mask)


def test_a_block_needs_a_query() -> None:
    with pytest.raises(ValueError, match="block must be at least 1, got 0"):
        run(Mask(window=(1, 1)), block=0)


def test_memory_grows_with_the_length() -> None:
    """Of a pass there and back: no array has a number for each pair."""

    def peak(length: int) -> int:
        x = jax.ShapeDtypeStruct((1, length, 1, 8), jnp.float32)

        def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            mask = Mask(window=(16, 16))
            return windowed(q, KeysValues(k, v), mask=mask, bias=None, drop=None).values.sum()

        return (
            jax.jit(jax.grad(loss, (0, 1, 2)))
            .lower(x, x, x)
            .compile()
            .memory_analysis()
            .temp_size_in_bytes
        )

    assert peak(4096) < 2.2 * peak(2048) < 2048**2

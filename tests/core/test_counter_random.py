"""Keys of the counter: numbers that are uniform, independent, and the same on every mesh."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_like.core.counter_random import COUNTER, sixteen_bits
from t5x_like.core.partitioning import make_layout


def key(seed: int = 0) -> jax.Array:
    return jax.random.key(seed, impl=COUNTER)


def test_every_bit_is_set_half_of_the_time_and_changes_with_every_bit_of_the_position() -> None:
    words = np.asarray(jax.random.bits(key(), (2**16, 16)))
    bits = (words[..., None] >> np.arange(32)) & 1
    n = bits[..., 0].size
    np.testing.assert_allclose(bits.mean(axis=(0, 1)), 0.5, atol=4 * 0.5 / n**0.5)
    flat = bits.reshape(n, 32)
    for distance in (1, 2, 16, 1024):  # neighbours in a row, and rows
        changed = (flat[distance:] != flat[:-distance]).mean(axis=0)
        np.testing.assert_allclose(changed, 0.5, atol=4 * 0.5 / (n - distance) ** 0.5)


@pytest.mark.parametrize("other", ["split", "folded", "seed"])
def test_other_keys_give_other_numbers(other: str) -> None:
    first = key()
    second = {
        "split": jax.random.split(first)[1],
        "folded": jax.random.fold_in(first, 1),
        "seed": key(1),
    }[other]
    a, b = (np.asarray(jax.random.bits(k, (2**18,))) for k in (first, second))
    changed = ((a[:, None] ^ b[:, None]) >> np.arange(32) & 1).mean(axis=0)
    np.testing.assert_allclose(changed, 0.5, atol=5 * 0.5 / 2**9)
    assert len(np.intersect1d(a, b)) < 50  # not the same numbers in another order: 16 by chance


def test_numbers_do_not_depend_on_the_mesh_nor_on_the_dimensions() -> None:
    want = jax.random.bits(key(), (8, 6, 4))
    layout = make_layout({"data": 4, "tensor": 2})
    split = jax.jit(
        lambda k: jax.random.bits(k, (8, 6, 4)),
        out_shardings=layout.sharding(("batch", None, "mlp"), (8, 6, 4)),
    )(key())
    np.testing.assert_array_equal(split, want)
    np.testing.assert_array_equal(jax.random.bits(key(), (8 * 6 * 4,)), want.reshape(-1))


def test_jax_draws_from_it() -> None:
    draws = jax.random.uniform(key(3), (2**16,))
    assert abs(float(draws.mean()) - 0.5) < 4 / 12**0.5 / 2**8
    share = float(jax.random.bernoulli(key(4), 0.3, (2**16,)).mean())
    assert abs(share - 0.3) < 4 * 0.5 / 2**8
    several = jax.vmap(lambda k: jax.random.bits(k, (4,)))(jax.random.split(key(), 3))
    assert len(np.unique(several)) == 12
    assert jax.random.bits(key(), (5,), jnp.uint16).dtype == jnp.uint16


@pytest.mark.parametrize("size", [8, 7])
def test_two_numbers_of_a_word_lie_half_a_row_apart(size: int) -> None:
    half = (size + 1) // 2
    words = jax.random.bits(key(), (3, 5, half))
    halves = [words & 0xFFFF, words >> 16]
    want = jnp.concatenate(halves, axis=-1)[..., :size]
    np.testing.assert_array_equal(sixteen_bits(key(), (3, 5, size)), want)

"""Random numbers for dropout that cost an accelerator little: a hash of a key and of each position.

No number is stored or carried, so XLA computes them inside the operation that reads them, in the
forward pass and again in the backward pass, and they do not depend on how arrays are split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import random as extended


def hashed(position: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Uniform uint32 numbers, one for each position (uint32), from the two words of a key.

    The three rounds of multiplying and shifting are a finaliser with low bias ("triple32", found by
    C. Wellons' hash prospector, 2018); the key enters before the first and the second, so that two
    keys do not give the same numbers in another order.
    """
    x = position ^ (low + jnp.uint32(0x9E3779B9))  # otherwise 0 of key 0 stays 0
    x = (x ^ (x >> 17)) * jnp.uint32(0xED5AD4BB)
    x = x + high
    x = (x ^ (x >> 11)) * jnp.uint32(0xAC4C1B51)
    x = (x ^ (x >> 15)) * jnp.uint32(0x31848BAB)
    return x ^ (x >> 14)


def _bits(key: jax.Array, bit_width: int, shape: Sequence[int]) -> jax.Array:
    """Random bits of an array, from its positions in row-major order."""
    position = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for d in reversed(range(len(shape))):
        # Not one long counter that is reshaped: that would be a copy.
        position += jax.lax.broadcasted_iota(jnp.uint32, shape, d) * jnp.uint32(stride % 2**32)
        stride *= shape[d]
    words = hashed(position, key[0], key[1])
    if bit_width < 32:
        return (words >> (32 - bit_width)).astype(f"uint{bit_width}")
    if bit_width == 32:
        return words
    more = hashed(position, key[1], ~key[0])
    return (words.astype(jnp.uint64) << 32) | more.astype(jnp.uint64)


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.random.key_data(jax.random.split(_threefry(key), shape))


def _fold_in(key: jax.Array, data: Any) -> jax.Array:
    return jax.random.key_data(jax.random.fold_in(_threefry(key), data))


def _seed(seed: jax.Array) -> jax.Array:
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


def _threefry(key: jax.Array) -> jax.Array:
    return jax.random.wrap_key_data(key, impl="threefry2x32")


COUNTER = extended.define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="counter"
)
"""The kind of key, for `jax.random.key(0, impl=COUNTER)`."""

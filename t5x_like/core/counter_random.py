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

_SPLITTING, _FOLDING = 0x5851F42D, 0x14057B7E
"""Constants that separate keys that make keys from keys that make numbers; any two would do."""


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
    """Random bits of an array, from its positions in row-major order: the same after 2**32."""
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
    """Keys [..., 2]: numbers of another key, so that they differ from those that `key` draws."""
    other = key ^ jnp.array([_SPLITTING, 0], jnp.uint32)
    return _bits(other, 32, (*shape, 2))


def _fold_in(key: jax.Array, data: Any) -> jax.Array:
    other = key ^ jnp.array([_FOLDING, 0], jnp.uint32)
    return _bits(_mixed(other, jnp.uint32(data)), 32, (2,))


def _mixed(key: jax.Array, data: jax.Array) -> jax.Array:
    """A key in whose words a number is hashed, each in another way."""
    return jnp.stack([hashed(data, key[0], key[1]), hashed(data, key[1], ~key[0])])


def _seed(seed: jax.Array) -> jax.Array:
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


COUNTER = extended.define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="counter"
)
"""The kind of key, for `jax.random.key(0, impl=COUNTER)`."""


def sixteen_bits(
    key: jax.Array,
    shape: Sequence[int],
    *,
    lines: jax.Array | None = None,
    columns: jax.Array | None = None,
) -> jax.Array:
    """Uniform below 2**16, uint32: `joined_halves` of the words of a key of this kind.

    Each is computed from its own position, so that XLA can compute it inside what reads it. With
    `columns`, integers, only these of the last dimension are drawn, the same as with all others;
    each row of the first dimension may have its own, [B, C]. With `lines`, only these of the one
    before.
    """
    *leading, size = shape
    half = jnp.uint32(-(-size // 2))
    all_columns = jax.lax.broadcasted_iota(jnp.uint32, (size,), 0)
    column = all_columns if columns is None else columns.astype(jnp.uint32)
    if column.ndim == 2:
        column = column.reshape(len(column), *[1] * (len(leading) - 1), -1)
    second = column >= half
    place, stride = jnp.where(second, column - half, column), -(-size // 2)
    drawn = leading if lines is None else [*leading[:-1], len(lines)]
    for d in reversed(range(len(leading))):
        index = jax.lax.broadcasted_iota(jnp.uint32, (*drawn[d:], column.shape[-1]), 0)
        if lines is not None and d == len(leading) - 1:
            index = lines.astype(jnp.uint32)[:, None]
        place, stride = place + index * jnp.uint32(stride % 2**32), stride * shape[d]
    words = hashed(place, *jax.random.key_data(key))
    return jnp.where(second, words >> 16, words & (2**16 - 1))


def joined_halves(words: jax.Array, size: int) -> jax.Array:
    """Two numbers below 2**16 of each word, which lie half of the last dimension apart.

    A mesh hardly ever splits that dimension, so that joining the halves moves nothing between
    devices. `size` is the last dimension of the result.
    """
    return jnp.concatenate([words & (2**16 - 1), words >> 16], axis=-1)[..., :size]


def is_counter(key: jax.Array) -> bool:
    """Whether keys are of this kind: drawing again costs less than storing what was drawn."""
    return key.dtype == jax.eval_shape(lambda: jax.random.key(0, impl=COUNTER)).dtype

"""Vectors of code points from several hash tables, without a vocabulary (CANINE, section 3.1).

CANINE is Clark et al., 2022. Suffixes: B batch, L length, S hash functions, E width of a vector.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.basics.modules import Embedding, Init, next_key

PRIMES = (31, 43, 59, 61, 73, 97, 103, 113, 137, 149, 157, 173, 181, 193, 211, 223)
"""One for each hash function of the published code."""


class HashEmbedding(nnx.Module):
    """A part of each vector from each of S tables, whose row a hash function chooses.

    Function s takes id i to row (i + 1) * `PRIMES[s]` modulo the rows. Any id has a vector; two
    share theirs where all functions agree. Products stay in int32 for every code point of Unicode.
    """

    def __init__(
        self, num_buckets: int, width: int, *, num_hashes: int, init: Init, rngs: nnx.Rngs
    ) -> None:
        """Makes the tables.

        Args:
          num_buckets: the rows of each.
          width: E, which the tables share evenly.
          num_hashes: S.
          init: the initialiser of the tables.
          rngs: the source of random numbers.

        Raises:
          ValueError: there are not so many functions, or they do not divide the width.
        """
        check(width, num_hashes, name="HashEmbedding")
        keys = jax.random.split(next_key(rngs), num_hashes)
        share = width // num_hashes
        # Stacked as layers are: an optimizer with a norm for each parameter has one for each table.
        self.tables = jax.vmap(
            lambda key: Embedding(num_buckets, share, init=init, rngs=nnx.Rngs(key))
        )(keys)
        self.num_buckets = num_buckets
        self.num_hashes = num_hashes

    def __call__(self, ids_BL: jax.Array, *, dtype: DTypeLike) -> jax.Array:
        """[B, L, E] in `dtype`."""
        primes_S = jnp.array(PRIMES[: self.num_hashes], jnp.int32)
        rows_SBL = (ids_BL.astype(jnp.int32) + 1) * primes_S[:, None, None] % self.num_buckets
        parts_SBLE = jax.vmap(lambda table, rows: table(rows, dtype=dtype))(self.tables, rows_SBL)
        return jnp.moveaxis(parts_SBLE, 0, 2).reshape(*ids_BL.shape, -1)


def check(width: int, num_hashes: int, *, name: str) -> None:
    """Refuses a number of hash functions that there are not, or that does not divide the width.

    Raises:
      ValueError: so it is; begins with `name`.
    """
    if not 1 <= num_hashes <= len(PRIMES) or width % num_hashes:
        raise ValueError(
            f"{name}: {num_hashes} hash functions must be 1 to {len(PRIMES)} and divide the width "
            f"{width} evenly"
        )

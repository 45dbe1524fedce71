"""Dropout with explicit keys: None means deterministic."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from t5x_like.core.partitioning import constrain


@dataclasses.dataclass(frozen=True)
class Dropouts:
    """The dropout rates of a layer, each in [0, 1), and how masks are shared.

    Attributes:
      hidden: rate for what is added to the residual stream.
      attention: rate for attention probabilities.
      mlp: rate inside the feed-forward part, after its activation.
      shared: T5 drops the same units at all positions of a row, and the same keys for all queries
        of a head; elsewhere every element is drawn independently.
      after_attention: whether `hidden` applies to what attention adds (not in DistilBERT).
    """

    hidden: float = 0.0
    attention: float = 0.0
    mlp: float = 0.0
    shared: bool = False
    after_attention: bool = True


NO_DROPOUT = Dropouts()

_NUMBERS = 2**16


def subkeys(key: jax.Array | None, n: int) -> Sequence[jax.Array | None]:
    """`n` independent keys; `n` times None where `key` is None (deterministic)."""
    return [None] * n if key is None else list(jax.random.split(key, n))


def dropout(
    x: jax.Array, key: jax.Array | None, *, rate: float, shared: Sequence[int] = ()
) -> jax.Array:
    """Zeroes elements with probability `rate` and scales the rest; `key` None changes nothing.

    One mask serves all positions along the dimensions `shared`. The rate is rounded to a multiple
    of 2**-16; the scale uses the rounded rate.
    """
    if key is None or rate == 0.0:
        return x
    shape = [1 if d in shared else size for d, size in enumerate(x.shape)]
    dropped = min(round(rate * _NUMBERS), _NUMBERS - 1)
    keep = _sixteen_bits(key, shape) >= dropped
    # Otherwise XLA may draw the numbers a second time for the backward pass.
    keep = jax.lax.optimization_barrier(keep)
    return jnp.where(keep, x * (_NUMBERS / (_NUMBERS - dropped)), jnp.zeros((), x.dtype))


def _sixteen_bits(key: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Uniform below 2**16, uint32: two from each random word.

    The two of a word lie half of the last dimension apart. A mesh hardly ever splits that
    dimension, so that joining the halves moves nothing between devices.
    """
    *leading, size = shape
    words = jax.random.bits(key, (*leading, -(-size // 2)), jnp.uint32)
    return jnp.concatenate([words & (_NUMBERS - 1), words >> 16], axis=-1)[..., :size]


def dropout_hidden(x_BLD: jax.Array, key: jax.Array | None, *, dropouts: Dropouts) -> jax.Array:
    """Dropout of the residual stream, or of what will be added to it."""
    return dropout(x_BLD, key, rate=dropouts.hidden, shared=(1,) if dropouts.shared else ())


def residual(
    x_BLD: jax.Array, y_BLD: jax.Array, *, dropouts: Dropouts, key: jax.Array | None
) -> jax.Array:
    """x + dropout(y)."""
    y_BLD = dropout_hidden(y_BLD, key, dropouts=dropouts)
    return constrain(x_BLD + y_BLD, "batch", "length", "embed_act")

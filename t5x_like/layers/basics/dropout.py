"""Dropout with explicit keys: None means deterministic."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from t5x_like.core.counter_random import is_counter, joined_halves, sixteen_bits
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
      after_mlp: whether it applies to what the feed-forward part adds (not in ModernBERT).
    """

    hidden: float = 0.0
    attention: float = 0.0
    mlp: float = 0.0
    shared: bool = False
    after_attention: bool = True
    after_mlp: bool = True


NO_DROPOUT = Dropouts()

_NUMBERS = 2**16
_OF_MATRICES = 0x6C6F7261
"""What is folded into the key of a layer for its matrices: no part of the layer has that key."""


def subkeys(key: jax.Array | None, n: int) -> Sequence[jax.Array | None]:
    """`n` independent keys; `n` times None where `key` is None (deterministic)."""
    return [None] * n if key is None else list(jax.random.split(key, n))


class DropsInputs(nnx.Module):
    """A part of a layer that drops units of what it reads in training, with a key of its own.

    Attributes:
      input_dropout: the rate.
      dropout_key: the key, which `give_keys` sets where a layer runs; None: nothing is dropped.
    """

    input_dropout: float = 0.0
    dropout_key: jax.Array | None = None


def give_keys(layer: nnx.Module, key: jax.Array | None) -> None:
    """Gives each part of a layer that drops its inputs a key of its own.

    Args:
      layer: a layer as it runs once, a copy of what the model stores.
      key: that of the layer; None: without dropout.
    """
    if key is None:
        return
    parts = [part for _, part in nnx.iter_graph(layer) if isinstance(part, DropsInputs)]
    for number, part in enumerate(part for part in parts if part.input_dropout):
        part.dropout_key = jax.random.fold_in(jax.random.fold_in(key, _OF_MATRICES), number)


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
    dropped = _dropped(rate)
    if is_counter(key):
        return _dropout_again(x, key, tuple(shape), dropped)
    keep = _drawn(key, shape) >= dropped
    # Otherwise XLA may draw the numbers a second time for the backward pass.
    return _kept(x, jax.lax.optimization_barrier(keep), dropped)


def _dropped(rate: float) -> int:
    return min(round(rate * _NUMBERS), _NUMBERS - 1)


def _kept(x: jax.Array, keep: jax.Array, dropped: int) -> jax.Array:
    return jnp.where(keep, x * (_NUMBERS / (_NUMBERS - dropped)), jnp.zeros((), x.dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _dropout_again(x: jax.Array, key: jax.Array, shape: tuple[int, ...], dropped: int) -> jax.Array:
    """Dropout that stores only its key, and draws again in the backward pass."""
    return _kept(x, sixteen_bits(key, shape) >= dropped, dropped)


def _dropout_forward(
    x: jax.Array, key: jax.Array, shape: tuple[int, ...], dropped: int
) -> tuple[jax.Array, jax.Array]:
    return _dropout_again(x, key, shape, dropped), key


def _dropout_backward(
    shape: tuple[int, ...], dropped: int, key: jax.Array, g: jax.Array
) -> tuple[jax.Array, None]:
    return _dropout_again(g, key, shape, dropped), None


_dropout_again.defvjp(_dropout_forward, _dropout_backward)


def _drawn(key: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Uniform below 2**16, uint32: two from each random word."""
    *leading, size = shape
    return joined_halves(jax.random.bits(key, (*leading, -(-size // 2)), jnp.uint32), size)


class Dropping(NamedTuple):
    """Dropout of attention probabilities [B, H, L, M] that are not there yet.

    Attributes:
      key: the key of all of them.
      rate: the probability of each to be dropped.
      shared: whether all queries of a head drop the same keys.
    """

    key: jax.Array
    rate: float
    shared: bool

    def __call__(self, p_BHLM: jax.Array) -> jax.Array:
        shared = (2,) if self.shared else ()
        return dropout(p_BHLM, self.key, rate=self.rate, shared=shared)

    def of_part(
        self, p_BHQC: jax.Array, queries_Q: jax.Array, columns_C: jax.Array, *, of: tuple[int, int]
    ) -> jax.Array:
        """The same for some queries and some keys.

        Args:
          p_BHQC: their probabilities.
          queries_Q: the numbers of the queries among L, and
          columns_C: of the keys among M, integers [C], or [B, C] where rows have different ones.
          of: L and M.

        Raises:
          ValueError: keys are not of the kind `counter`, which draws any part alone.
        """
        if not is_counter(self.key):
            raise ValueError(
                f"dropout of attention in blocks draws counter, not {jax.random.key_impl(self.key)}"
                ": set RANDOM_NUMBERS to 'counter', or use attention_kernels.plain"
            )
        rows, heads, _, _ = p_BHQC.shape
        shape = (rows, heads, 1 if self.shared else of[0], of[1])
        lines = None if self.shared else queries_Q
        drawn = sixteen_bits(self.key, shape, lines=lines, columns=columns_C)
        return _kept(p_BHQC, drawn >= self.dropped, self.dropped)

    @property
    def dropped(self) -> int:
        """How many of 2**16 draws drop a probability."""
        return _dropped(self.rate)


def dropout_hidden(x_BLD: jax.Array, key: jax.Array | None, *, dropouts: Dropouts) -> jax.Array:
    """Dropout of the residual stream, or of what will be added to it."""
    return dropout(x_BLD, key, rate=dropouts.hidden, shared=(1,) if dropouts.shared else ())


def residual(
    x_BLD: jax.Array, y_BLD: jax.Array, *, dropouts: Dropouts, key: jax.Array | None
) -> jax.Array:
    """x + dropout(y)."""
    y_BLD = dropout_hidden(y_BLD, key, dropouts=dropouts)
    return checkpoint_name(constrain(x_BLD + y_BLD, "batch", "length", "embed_act"), "residual")

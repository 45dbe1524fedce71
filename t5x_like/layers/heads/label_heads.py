"""Heads for tasks: for a whole sequence, for each token, for an answer's span.

Suffixes: B batch, A alternatives of a choice, L length, D d_model, C classes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.dropout import dropout, subkeys
from t5x_like.layers.basics.mlp import Activation
from t5x_like.layers.basics.modules import Init, LayerNorm, Linear
from t5x_like.layers.heads.outputs import output

NORMAL = nnx.initializers.truncated_normal(0.02)
_NO_ALTERNATIVE = -1e9


def by_width(key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32") -> jax.Array:
    """An initialiser with the std D ** -0.5, cut at two std (ModernBERT's published code)."""
    return nnx.initializers.truncated_normal(shape[0] ** -0.5)(key, tuple(shape), dtype)


Pool = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""From states [B, L, D], tokens [B, L] and what counts [B, L] to one state a row, [B, D]."""


def first(x_BLD: jax.Array, tokens_BL: jax.Array, counts_BL: jax.Array) -> jax.Array:
    """The state of the first position: [CLS] or <s> (BERT, section 3)."""
    return x_BLD[:, 0]


def last_that_counts(x_BLD: jax.Array, tokens_BL: jax.Array, counts_BL: jax.Array) -> jax.Array:
    """The state of the last token that is not padding (GPT, section 3.3); XLNet's is <cls>."""
    length = counts_BL.shape[1]
    at_B = length - 1 - jnp.argmax(counts_BL[:, ::-1] > 0, axis=1)
    return _at(x_BLD, at_B)


def mean(x_BLD: jax.Array, tokens_BL: jax.Array, counts_BL: jax.Array) -> jax.Array:
    """The mean of the states of tokens that are not padding; zeros where there are none."""
    weights_BL = (counts_BL > 0).astype(x_BLD.dtype)
    sums_BD = (x_BLD * weights_BL[..., None]).sum(axis=1)
    return sums_BD / jnp.maximum(weights_BL.sum(axis=1), 1)[:, None]


def pooled(pool: Pool, x_BLD: jax.Array, tokens_BL: jax.Array, counts: jax.Array) -> jax.Array:
    """One state of a row, [B, D]; or of the text that begins at each position, [B, L, D].

    Args:
      pool: which.
      x_BLD: the states.
      tokens_BL: the tokens.
      counts: above 0 for what counts in a row, [B, L], or in the text of each position, [B, L, L].
    """
    if counts.ndim == 2:
        return pool(x_BLD, tokens_BL, counts)
    if pool is first:
        return x_BLD
    return jax.vmap(pool, in_axes=(None, None, 1), out_axes=1)(x_BLD, tokens_BL, counts)


@dataclasses.dataclass(frozen=True)
class LastOf:
    """The state of the last position that reads `token`: BART's and T5's end of sequence."""

    token: int

    def __call__(self, x_BLD: jax.Array, tokens_BL: jax.Array, counts_BL: jax.Array) -> jax.Array:
        return last_that_counts(x_BLD, tokens_BL, tokens_BL == self.token)


def of_alternatives(logits_BA: jax.Array, counts_BAL: jax.Array) -> jax.Array:
    """The logits of a choice, where an alternative without tokens cannot be chosen."""
    return jnp.where((counts_BAL > 0).any(axis=-1), logits_BA, _NO_ALTERNATIVE)


def _at(x_BLD: jax.Array, at_B: jax.Array) -> jax.Array:
    return jnp.take_along_axis(x_BLD, at_B[:, None, None], axis=1)[:, 0]


class Pooler(nnx.Module):
    """activation(dense(state)): BERT's of one position, with tanh."""

    def __init__(
        self,
        d_model: int,
        *,
        init: Init,
        activation: Activation,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.dense = Linear(
            (d_model, d_model), ("embed", None), init=init, dtype=dtype, rngs=rngs, bias=True
        )
        self.activation = activation
        above(self)

    def __call__(self, x_BD: jax.Array) -> jax.Array:
        return self.activation(self.dense(x_BD))


class Transform(nnx.Module):
    """norm(activation(dense(x))), of any leading shape; neither part has a bias (ModernBERT)."""

    def __init__(
        self,
        d_model: int,
        *,
        init_std: float,
        activation: Activation,
        epsilon: float,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        init = nnx.initializers.truncated_normal(init_std)
        self.dense = Linear((d_model, d_model), ("embed", None), init=init, dtype=dtype, rngs=rngs)
        self.norm = LayerNorm(d_model, epsilon=epsilon, dtype=dtype, rngs=rngs, bias=False)
        self.activation = activation
        above(self)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.activation(self.dense(x)))


class PooledState(nnx.Module):
    """A `Pooler` of the one state of a row, as a feature."""

    def __init__(
        self,
        d_model: int,
        *,
        pool: Pool,
        activation: Activation,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        init: Init = NORMAL,
    ) -> None:
        self.pooler = Pooler(d_model, init=init, activation=activation, dtype=dtype, rngs=rngs)
        self.pool = pool
        above(self)

    def __call__(
        self,
        x_BLD: jax.Array,
        tokens_BL: jax.Array,
        counts_BL: jax.Array,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Float32 [B, D]."""
        return self.pooler(self.pool(x_BLD, tokens_BL, counts_BL)).astype(jnp.float32)


class SequenceHead(nnx.Module):
    """Classes (or, with one class, a number or a choice's score) from one state of a row.

    pool -> dropout -> pooler -> dropout -> dense; the families leave out some of these. With an
    `activation`, the pooler is a `Pooler`; or else `transform` makes it. With `pool_last`, the
    pooler reads every state, and the pool its results (EuroBERT).
    """

    def __init__(
        self,
        d_model: int,
        num_labels: int,
        *,
        pool: Pool,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        activation: Activation | None = None,
        init: Init = NORMAL,
        dropout_rates: tuple[float, float] = (0.0, 0.0),
        bias: bool = True,
        transform: Callable[..., Pooler | Transform] | None = None,
        pool_last: bool = False,
    ) -> None:
        if activation is not None:
            transform = functools.partial(Pooler, init=init, activation=activation)
        self.pooler = transform and transform(d_model, dtype=dtype, rngs=rngs)
        shape, axes = (d_model, num_labels), ("embed", None)
        self.out = output(Linear(shape, axes, init=init, dtype=dtype, rngs=rngs, bias=bias))
        self.pool = pool
        self.pool_last = pool_last
        self.dropout_rates = dropout_rates
        above(self)

    @property
    def drops(self) -> bool:
        """Whether it drops units."""
        return any(self.dropout_rates)

    def __call__(
        self,
        x_BLD: jax.Array,
        tokens_BL: jax.Array,
        counts: jax.Array,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Float32 [B, C], or [B, L, C] of the texts of a row; `counts` are those of `pooled`."""
        keys = subkeys(key, 2)
        x = x_BLD if self.pool_last else pooled(self.pool, x_BLD, tokens_BL, counts)
        x = dropout(x, keys[0], rate=self.dropout_rates[0])
        if self.pooler is not None:
            x = self.pooler(x)
        x = pooled(self.pool, x, tokens_BL, counts) if self.pool_last else x
        x = dropout(x, keys[1], rate=self.dropout_rates[1])
        return self.out(x).astype(jnp.float32)


class TokenHead(nnx.Module):
    """Classes of each token; with two classes, the start and the end of an answer.

    transform -> dropout -> dense; most families have no transform.
    """

    def __init__(
        self,
        d_model: int,
        num_labels: int,
        *,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        init: Init = NORMAL,
        dropout_rate: float = 0.0,
        transform: Callable[..., Transform] | None = None,
    ) -> None:
        self.transform = transform and transform(d_model, dtype=dtype, rngs=rngs)
        shape, axes = (d_model, num_labels), ("embed", None)
        self.out = output(Linear(shape, axes, init=init, dtype=dtype, rngs=rngs, bias=True))
        self.dropout_rate = dropout_rate
        above(self)

    @property
    def drops(self) -> bool:
        """Whether it drops units."""
        return self.dropout_rate > 0

    def __call__(
        self,
        x_BLD: jax.Array,
        tokens_BL: jax.Array,
        counts_BL: jax.Array,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Float32 [B, L, C]."""
        if self.transform is not None:
            x_BLD = self.transform(x_BLD)
        return self.out(dropout(x_BLD, key, rate=self.dropout_rate)).astype(jnp.float32)

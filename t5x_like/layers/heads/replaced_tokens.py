"""Replaced tokens: samples them, puts them into a text, and detects them (ELECTRA, section 2).

Suffixes: B batch, L length, K masked positions, D d_model, V vocabulary, N blocks, S block size.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.core.counter_random import is_counter
from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.mlp import Activation
from t5x_like.layers.basics.modules import Init, LayerNorm, Linear
from t5x_like.layers.heads.label_heads import Pooler
from t5x_like.layers.heads.outputs import output

_BLOCK = 128


def row_keys(key: jax.Array, tokens_BL: jax.Array) -> jax.Array:
    """A key for each row, [B], from `key` and the row's tokens.

    The row's place in its batch does not matter: a batch in parts gives the same as the whole.
    """
    factors_L = jax.random.bits(key, tokens_BL.shape[1:])
    sums_B = (tokens_BL.astype(jnp.uint32) * factors_L).sum(axis=1)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, sums_B)


def sample_tokens(
    logits_BKV: jax.Array,
    *,
    keys_B: jax.Array,
    temperature: float = 1.0,
    excluded_BK: jax.Array | None = None,
) -> jax.Array:
    """Tokens, int32 [B, K], from softmax(logits / temperature), never those `excluded_BK`.

    Takes the largest of log p + Gumbel noise: at once where random numbers are cheap, else twice,
    among blocks of the vocabulary, then among the tokens of the block. The distribution is the
    same; random numbers are 70 times fewer. No gradient passes.
    """
    logits_BKV = jax.lax.stop_gradient(logits_BKV) / temperature
    vocab_size = logits_BKV.shape[-1]
    if excluded_BK is not None:
        is_excluded_BKV = excluded_BK[..., None] == jnp.arange(vocab_size)
        logits_BKV = jnp.where(is_excluded_BKV, -jnp.inf, logits_BKV)
    if is_counter(keys_B):
        return jax.vmap(jax.random.categorical)(keys_B, logits_BKV)
    p_BKV = jnp.exp(logits_BKV - logits_BKV.max(axis=-1, keepdims=True))
    p_BKV = jnp.pad(p_BKV, [(0, 0), (0, 0), (0, -vocab_size % _BLOCK)])

    def of_row(key: jax.Array, p_KNS: jax.Array) -> jax.Array:
        block_key, token_key = jax.random.split(key)
        block_K = jax.random.categorical(block_key, jnp.log(p_KNS.sum(axis=-1)))
        p_KS = jnp.take_along_axis(p_KNS, block_K[:, None, None], axis=1)[:, 0]
        return block_K * _BLOCK + jax.random.categorical(token_key, jnp.log(p_KS))

    return jax.vmap(of_row)(keys_B, p_BKV.reshape(*p_BKV.shape[:2], -1, _BLOCK))


def put(
    tokens_BL: jax.Array, values_BK: jax.Array, *, positions_BK: jax.Array, weights_BK: jax.Array
) -> jax.Array:
    """`tokens_BL` with `values_BK` at positions that have a weight; a later value wins."""
    slots_K = jnp.arange(1, values_BK.shape[1] + 1)
    slots_BK = jnp.where(weights_BK > 0, slots_K, 0)
    # Compared, not scattered: a scatter is slow on TPUs and leaves open which value wins.
    is_here_BKL = positions_BK[..., None] == jnp.arange(tokens_BL.shape[1])
    slots_BL = jnp.where(is_here_BKL, slots_BK[..., None], 0).max(axis=1)
    found_BL = jnp.take_along_axis(values_BK, jnp.maximum(slots_BL - 1, 0), axis=1)
    return jnp.where(slots_BL > 0, found_BL, tokens_BL)


class ReplacedTokenHead(Pooler):
    """A `Pooler` of each token's state, dense D -> 1: above 0 for tokens that look replaced."""

    def __init__(
        self,
        d_model: int,
        *,
        init: Init,
        activation: Activation,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(d_model, init=init, activation=activation, dtype=dtype, rngs=rngs)
        # The published code leaves it to TensorFlow's default.
        glorot = nnx.initializers.glorot_uniform()
        shape, axes = (d_model, 1), ("embed", None)
        self.out = output(Linear(shape, axes, init=glorot, bias=True, dtype=dtype, rngs=rngs))
        above(self)

    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        """Logits, float32 [B, L]."""
        return self.out(super().__call__(x_BLD))[..., 0].astype(jnp.float32)


class BesideFirstHead(nnx.Module):
    """Like a `ReplacedTokenHead`, of norm(state + state of the text's first token).

    norm -> dense -> activation -> dense D -> 1 (DeBERTa v3's published code).
    """

    def __init__(
        self,
        d_model: int,
        *,
        init: Init,
        activation: Activation,
        epsilon: float,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ) -> None:
        self.norm = LayerNorm(d_model, epsilon=epsilon, dtype=dtype, rngs=rngs)
        self.pooler = Pooler(d_model, init=init, activation=activation, dtype=dtype, rngs=rngs)
        shape, axes = (d_model, 1), ("embed", None)
        self.out = output(Linear(shape, axes, init=init, bias=True, dtype=dtype, rngs=rngs))
        above(self)

    def __call__(self, x_BLD: jax.Array, places_BL: jax.Array | None = None) -> jax.Array:
        """Logits, float32 [B, L]; `places_BL` are places in texts, None where a row is one text."""
        first_BLD = x_BLD[:, :1]
        if places_BL is not None:
            firsts_BL = jnp.maximum(jnp.arange(x_BLD.shape[1]) - places_BL, 0)
            first_BLD = jnp.take_along_axis(x_BLD, firsts_BL[..., None], axis=1)
        y_BLD = self.pooler(self.norm(x_BLD + first_BLD))
        return self.out(y_BLD)[..., 0].astype(jnp.float32)


def concordant(
    logits_BL: jax.Array, is_replaced_BL: jax.Array, *, weights_BL: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The number of (replaced, original) pairs that the logits order rightly, and of all pairs.

    Their quotient is the area under the ROC curve: 0.5 without any knowledge, whatever the share
    of replaced tokens. Equal logits count half. Only tokens with a weight count; float32 [] each.
    """
    original_N = ((weights_BL > 0) & ~is_replaced_BL).ravel()
    replaced_N = ((weights_BL > 0) & is_replaced_BL).ravel()
    originals = original_N.sum()
    sorted_N = jnp.sort(jnp.where(original_N, logits_BL.ravel(), jnp.inf))
    below_N = jnp.searchsorted(sorted_N, logits_BL.ravel(), side="left")
    until_N = jnp.searchsorted(sorted_N, logits_BL.ravel(), side="right")
    wins_N = 0.5 * (below_N + jnp.minimum(until_N, originals))
    pairs = replaced_N.sum().astype(jnp.float32) * originals
    return (wins_N * replaced_N).sum(), pairs


class DetectionSums(NamedTuple):
    """Sums over weighted tokens, float32 []; `found` are both `replaced` and `suspected`."""

    cross_entropy: jax.Array
    correct: jax.Array
    found: jax.Array
    suspected: jax.Array
    replaced: jax.Array


def detection_sums(
    logits_BL: jax.Array, is_replaced_BL: jax.Array, *, weights_BL: jax.Array
) -> DetectionSums:
    """Counts how well the sign of the logits tells replaced tokens (bool) from the others."""
    suspected_BL = logits_BL > 0

    def total(x_BL: jax.Array) -> jax.Array:
        return (x_BL * weights_BL).sum()

    return DetectionSums(
        cross_entropy=total(jax.nn.softplus(jnp.where(is_replaced_BL, -logits_BL, logits_BL))),
        correct=total(suspected_BL == is_replaced_BL),
        found=total(suspected_BL & is_replaced_BL),
        suspected=total(suspected_BL),
        replaced=total(is_replaced_BL),
    )

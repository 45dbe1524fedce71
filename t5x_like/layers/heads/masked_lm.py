"""Predicts tokens at masked positions: gathers their states, scores them, sums the loss.

Suffixes: B batch, L length, K masked positions, D width of a state, E width of the token table,
V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.core.partitioning import constrain
from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.mlp import Activation
from t5x_like.layers.basics.modules import (
    ZEROS,
    Embedding,
    Init,
    LayerNorm,
    Linear,
    Logits,
    param,
)
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.cross_entropy import TokenSums, token_sums

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


def at_positions(x_BLD: jax.Array, positions_BK: jax.Array) -> jax.Array:
    """The states [B, K, D] at positions, int32 [B, K]."""
    x_BKD = jnp.take_along_axis(x_BLD, positions_BK[..., None], axis=1)
    return constrain(x_BKD, "batch", None, "embed_act")


class MaskedLanguageHead(nnx.Module):
    """dense D -> E, activation, layer norm, products with the token table, a bias for each token.

    The table belongs to the embedding and is passed in (BERT, section 3.1). Without `bias`, the
    dense layer and the norm have none (ModernBERT).
    """

    def __init__(
        self,
        shape: tuple[int, int],
        vocab_size: int,
        *,
        init: Init,
        activation: Activation,
        epsilon: float,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
        bias: bool = True,
    ) -> None:
        self.dense = Linear(shape, ("embed", None), init=init, dtype=dtype, rngs=rngs, bias=bias)
        self.norm = LayerNorm(shape[1], epsilon=epsilon, dtype=dtype, rngs=rngs, bias=bias)
        self.bias = param(ZEROS, (vocab_size,), axes=("vocab",), rngs=rngs)
        self.activation = activation
        above(self)

    def __call__(self, x_BKD: jax.Array, embedding: Embedding) -> jax.Array:
        """Logits, float32 [B, K, V]."""
        return self.token_scores(x_BKD, embedding).logits()

    def token_scores(self, x_BKD: jax.Array, embedding: Embedding) -> TokenScores:
        x_BKE = self.norm(self.activation(self.dense(x_BKD)))
        return embedding.token_scores(x_BKE, self.bias[...])

    def products(self, embedding: Embedding) -> float:
        """Multiply-adds of a position."""
        return accounting.matrix_size(self) + float(embedding.table.size)


class UntiedHead(nnx.Module):
    """Scores states with a matrix that is not the token table (NeoBERT, EuroBERT).

    It is used as a `MaskedLanguageHead`, whose table is not read.
    """

    def __init__(
        self, d_model: int, vocab_size: int, *, init: Init, bias: bool, rngs: nnx.Rngs
    ) -> None:
        self.logits = Logits(d_model, vocab_size, init=init, rngs=rngs, bias=bias)

    def __call__(self, x_BKD: jax.Array, embedding: Embedding) -> jax.Array:
        """Logits, float32 [B, K, V]."""
        return self.token_scores(x_BKD, embedding).logits()

    def token_scores(self, x_BKD: jax.Array, embedding: Embedding) -> TokenScores:
        return self.logits.token_scores(x_BKD)

    def products(self, embedding: Embedding) -> float:
        """Multiply-adds of a position."""
        return accounting.matrix_size(self)


def masked_sums(
    head: MaskedLanguageHead | UntiedHead, x_BKD: jax.Array, embedding: Embedding, *, batch: Batch
) -> TokenSums:
    """Sums over the states at masked positions of the loss of `masked_targets`.

    They are weighted by `masked_loss_weights`. A metric that needs the logits is a field of
    `TokenSums`.
    """
    scores = head.token_scores(x_BKD, embedding)
    weights_BK = batch["masked_loss_weights"].astype(jnp.float32)
    return token_sums(scores, batch["masked_targets"], weights_BL=weights_BK)

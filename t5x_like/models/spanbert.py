"""SpanBERT: a BERT that predicts a masked span from its boundaries too (Joshi et al., 2020).

Suffixes: B batch, L length, K masked positions, D d_model, P width of an offset's vector,
V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.modules import Embedding, Init, LayerNorm, Linear, param
from t5x_like.layers.heads.masked_lm import at_positions
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import token_sums
from t5x_like.models import bert

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(bert.Config):
    """Architecture of a SpanBERT; the defaults are SpanBERT base's (SpanBERT, section 4.2)."""

    vocab_size: int = 28996
    sentence_head: bool = False
    initializer: Callable[..., Init] = nnx.initializers.normal
    max_boundary_targets: int = 15  # tokens of a span that its boundaries predict
    d_offset: int = 200  # width of the vector of a token's place in its span


class BoundaryHead(nnx.Module):
    """[state before the span; state after it; offset] -> two dense layers, each activated, normed.

    From the second layer on it is a masked language model's head: the token table and its own bias
    score (SpanBERT, section 3.2).
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        init, d_model = config.init, config.d_model
        shape = (config.max_boundary_targets, config.d_offset)
        self.offsets = param(init, shape, axes=(None, None), multiplied=False, rngs=rngs)
        self.dense = Linear(
            (2 * d_model + config.d_offset, d_model),
            ("embed", None),
            init=init,
            bias=True,
            dtype=config.dtype,
            rngs=rngs,
        )
        self.norm = LayerNorm(d_model, epsilon=config.norm_epsilon, dtype=config.dtype, rngs=rngs)
        self.head = bert.masked_head(config, rngs)
        self.activation = config.activation
        above(self)

    def __call__(self, x_BLD: jax.Array, embedding: Embedding, *, batch: Batch) -> jax.Array:
        """Logits of the masked tokens, float32 [B, K, V]."""
        edges = (
            at_positions(x_BLD, batch["boundary_left_positions"]),
            at_positions(x_BLD, batch["boundary_right_positions"]),
        )
        offsets_BKP = self.offsets[...][batch["boundary_offsets"]].astype(x_BLD.dtype)
        h_BKD = self.dense(jnp.concatenate([*edges, offsets_BKP], axis=-1))
        return self.head(self.norm(self.activation(h_BKD)), embedding)


class SpanBert(bert.Bert):
    """A BERT with the span-boundary objective.

    A batch also holds int32 `boundary_left_positions`, `boundary_right_positions` and
    `boundary_offsets`, and float32 `boundary_loss_weights`, [B, K] each, for the masked positions.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, rngs=rngs)
        self.boundary = BoundaryHead(config, rngs=rngs)

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Denominators, among them `boundary`: the masked tokens that boundaries predict."""
        return {**super().weights(batch), "boundary": _boundary_weights(batch).sum()}

    def terms_of(self, x_BLD: jax.Array, batch: Batch) -> tuple[dict[str, Term], Metrics]:
        terms, metrics = super().terms_of(x_BLD, batch)
        weights_BK = _boundary_weights(batch)
        logits_BKV = self.boundary(x_BLD, self.encoder.tokens, batch=batch)
        sums = token_sums(logits_BKV, batch["masked_targets"], weights_BL=weights_BK)
        terms["boundary"] = Term(sums.cross_entropy, weights_BK.sum())
        metrics["boundary_accuracy"] = (sums.correct, weights_BK.sum())
        return terms, metrics

    def flops(self, batch: Batch) -> jax.Array:
        """A BERT's operations, and those of the boundary head."""
        each = accounting.matrix_size(self.boundary) + float(self.encoder.tokens.table.size)
        predicted = accounting.count(_boundary_weights(batch))
        return super().flops(batch) + accounting.step_flops(predicted * each)


def _boundary_weights(batch: Batch) -> jax.Array:
    return batch["boundary_loss_weights"].astype(jnp.float32)

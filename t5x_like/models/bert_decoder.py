"""BERT, RoBERTa and ELECTRA's generator as decoders: each token predicts the next.

Suffixes: B batch, L length, D d_model, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
from flax import nnx

from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.families.decoder_only import DecoderOnly
from t5x_like.layers.losses import accounting
from t5x_like.models import bert

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(bert.Config):
    """Architecture of a BERT, and the loss of a language model."""

    sentence_head: bool = False
    z_loss: float = 0.0
    label_smoothing: float = 0.0


class BertDecoder(DecoderOnly):
    """A `DecoderOnly` with a BERT's parts, including its head for masked tokens.

    All tokens are of the first type. In packed rows, positions count from 0 in every example.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        trunk = bert.Trunk(config, rngs=rngs)
        self.embedding = bert.embedding(config, rngs)
        self.project, self.stack = trunk.project, trunk.stack
        self.mlm = bert.masked_head(config, rngs)
        self.max_positions = config.room
        self.config = config

    def embedded(
        self,
        tokens_BL: jax.Array,
        key: jax.Array | None = None,
        *,
        positions_BL: jax.Array | None = None,
    ) -> jax.Array:
        config = self.config
        if positions_BL is None:
            rows_BL = bert.positions(tokens_BL, config=config)
        else:
            rows_BL = config.first_position + positions_BL
        x_BLE = self.embedding(tokens_BL, rows_BL, dtype=config.dtype, key=key)
        return x_BLE if self.project is None else self.project(x_BLE)

    def token_scores(self, x_BLD: jax.Array) -> TokenScores:
        return self.mlm.token_scores(x_BLD, self.embedding.tokens)

    def flops(self, batch: Batch) -> jax.Array:
        config = self.config
        # The table may be narrower than the states, which are projected from it and to it.
        more = accounting.matrix_size(self.project, self.mlm)
        more += (config.width - config.d_model) * config.vocab_size
        return super().flops(batch) + accounting.step_flops(self.tokens(batch) * more)


class ElectraDecoder(BertDecoder):
    """ELECTRA's generator as a decoder."""

"""T5 without an encoder: the prefix language model it is compared with (T5, section 3.2).

Suffixes: B batch, L length, D d_model, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
from flax import nnx

from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.dropout import dropout_hidden
from t5x_like.layers.basics.modules import Embedding
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.families.decoder_only import DecoderOnly
from t5x_like.layers.stacks.encoder import encoder_stack
from t5x_like.models import t5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(t5.Config):
    """Architecture and loss; the defaults are those of T5's comparison (section 3.2.2)."""

    d_model: int = 768
    d_ff: int = 3072
    num_heads: int = 12
    num_encoder_layers: int = 0  # there are none
    num_decoder_layers: int = 12

    may_be_zero: ClassVar = ("scan_unroll", "num_encoder_layers")


class PrefixLm(DecoderOnly):
    """A `DecoderOnly` with T5's layers; keys after a query, in a prefix, have their own buckets."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        made_of = t5.parts(config, bidirectional=True)
        normal = nnx.initializers.normal(1.0)
        self.embedding = Embedding(config.vocab_size, config.d_model, init=normal, rngs=rngs)
        self.stack = encoder_stack(config, made_of, num_layers=config.num_decoder_layers, rngs=rngs)
        self.norm = above(made_of.norm(rngs))
        self.relative = t5.shared_relative(config, bidirectional=True, stack="stack", rngs=rngs)
        self.output = t5.own_output(config, rngs)
        self.config = config

    @property
    def padding(self) -> int | None:
        """T5's."""
        return 0

    def embedded(
        self,
        tokens_BL: jax.Array,
        key: jax.Array | None = None,
        *,
        positions_BL: jax.Array | None = None,
    ) -> jax.Array:
        x_BLD = self.embedding(tokens_BL, dtype=self.config.dtype)
        return dropout_hidden(x_BLD, key, dropouts=self.config.dropouts)

    def bias(self, length: int, *, position: jax.Array | None = None) -> jax.Array | None:
        if self.relative is None:
            return None
        if position is None:
            return self.relative(length, length)
        return self.relative.row(position, length)

    def normed(self, x_BLD: jax.Array, key: jax.Array | None = None) -> jax.Array:
        return dropout_hidden(self.norm(x_BLD), key, dropouts=self.config.dropouts)

    def token_scores(self, x_BLD: jax.Array) -> TokenScores:
        return t5.token_scores(x_BLD, self.embedding, self.output)

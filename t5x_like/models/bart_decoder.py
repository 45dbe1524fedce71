"""The decoder of a BART or an mBART alone: a language model that reads no other text.

Suffixes: B batch, L length, D d_model, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
from flax import nnx

from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.families.decoder_only import DecoderOnly
from t5x_like.layers.stacks import standard_parts
from t5x_like.layers.stacks.encoder import encoder_stack
from t5x_like.models import bart


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(bart.Config):
    """Architecture and loss; the defaults are those of BART base's decoder."""

    num_encoder_layers: int = 0  # there are none

    may_be_zero: ClassVar = ("scan_unroll", "pad_id", "num_encoder_layers")


class BartDecoder(DecoderOnly):
    """A `DecoderOnly` with BART's layers, which have no attention to an encoder."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        made_of = standard_parts.parts(config, config.placement)
        self.embedding = bart.token_table(config, rngs)
        self.entry = bart.positioned_input(config, rngs, side="decoder")
        self.stack = encoder_stack(config, made_of, num_layers=config.num_decoder_layers, rngs=rngs)
        self.norm = above(made_of.norm(rngs)) if config.pre_norm else None
        self.max_positions = config.max_positions
        self.config = config

    def embedded(
        self,
        tokens_BL: jax.Array,
        key: jax.Array | None = None,
        *,
        positions_BL: jax.Array | None = None,
    ) -> jax.Array:
        return bart.embed(
            tokens_BL,
            key,
            table=self.embedding,
            entry=self.entry,
            config=self.config,
            side="decoder",
            positions_BL=positions_BL,
        )

    def normed(self, x_BLD: jax.Array, key: jax.Array | None = None) -> jax.Array:
        return x_BLD if self.norm is None else self.norm(x_BLD)

    def token_scores(self, x_BLD: jax.Array) -> TokenScores:
        return self.embedding.token_scores(x_BLD)

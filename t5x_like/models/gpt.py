"""GPT and GPT-2 (Radford et al., 2018; Radford et al., 2019).

Suffixes: B batch, L length, D d_model, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
from flax import nnx

from t5x_like.layers.basics import activations, embeddings
from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.embeddings import InputEmbedding
from t5x_like.layers.basics.mlp import Activation
from t5x_like.layers.basics.modules import Init
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.families.decoder_only import DecoderOnly
from t5x_like.layers.stacks import standard_parts
from t5x_like.layers.stacks.blocks import POST_NORM, PRE_NORM
from t5x_like.layers.stacks.encoder import encoder_stack


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(standard_parts.Config):
    """Architecture and loss of a GPT; the defaults are those of the smallest GPT-2 (table 2)."""

    vocab_size: int = 50257
    d_model: int = 768
    d_ff: int = 3072
    num_heads: int = 12
    num_layers: int = 12
    max_positions: int = 1024  # tokens of a row or, in packed rows, of an example
    pre_norm: bool = True  # with a last norm and smaller residual weights; GPT: False
    pad_id: int | None = None  # fills up rows; only heads of tasks need it
    activation: Activation = activations.gelu_tanh
    z_loss: float = 0.0
    label_smoothing: float = 0.0

    may_be_zero: ClassVar = ("scan_unroll", "pad_id")

    @property
    def residual_init(self) -> Init:
        """Initialises what is added to the residual stream, 2 L times (GPT-2, section 2.3)."""
        if not self.pre_norm:
            return self.init
        return nnx.initializers.normal(self.init_std * (2 * self.num_layers) ** -0.5)


class Gpt(DecoderOnly):
    """A `DecoderOnly` with learned positions, whose token table gives the logits."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        placement = PRE_NORM if config.pre_norm else POST_NORM
        made_of = standard_parts.parts(config, placement, residual_init=config.residual_init)
        self.embedding = InputEmbedding(
            config.vocab_size,
            config.d_model,
            max_positions=config.max_positions,
            type_vocab_size=0,
            init=config.init,
            norm=None,
            dropouts=config.dropouts,
            rngs=rngs,
        )
        self.stack = encoder_stack(config, made_of, num_layers=config.num_layers, rngs=rngs)
        self.norm = above(made_of.norm(rngs)) if config.pre_norm else None
        self.max_positions = config.max_positions
        self.config = config

    @property
    def padding(self) -> int | None:
        """Only heads of tasks need it."""
        return self.config.pad_id

    def embedded(
        self,
        tokens_BL: jax.Array,
        key: jax.Array | None = None,
        *,
        positions_BL: jax.Array | None = None,
    ) -> jax.Array:
        if positions_BL is None:
            embeddings.check_length(tokens_BL.shape[1], max_positions=self.max_positions)
            positions_BL = embeddings.positions_in_row(tokens_BL)
        return self.embedding(tokens_BL, positions_BL, dtype=self.config.dtype, key=key)

    def normed(self, x_BLD: jax.Array, key: jax.Array | None = None) -> jax.Array:
        return x_BLD if self.norm is None else self.norm(x_BLD)

    def token_scores(self, x_BLD: jax.Array) -> TokenScores:
        return self.embedding.tokens.token_scores(x_BLD)

"""ModernBERT's layers as a decoder (Ettin, Weller et al., 2025): each token predicts the next.

Suffixes: B batch, L length, D d_model.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import jax
from flax import nnx

from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics import embeddings
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.families.decoder_only import DecoderOnly, segments
from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks.encoder import EncoderStack
from t5x_like.models import modernbert

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(modernbert.Config):
    """Architecture of a ModernBERT whose tokens see none after them, and the loss.

    `window` counts positions before a token. Heads of tasks read the last state: `pooling` is not
    read.
    """

    z_loss: float = 0.0
    label_smoothing: float = 0.0

    causal: ClassVar[bool] = True
    parameters_of: ClassVar[type | None] = modernbert.Config


class ModernBertDecoder(DecoderOnly):
    """A `DecoderOnly` that has the parameters of a `ModernBert`, with the same names.

    So either of the two starts from the other, and goes on with the objective of its own.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.encoder = modernbert.Encoder(config, rngs=rngs)
        self.mlm = modernbert.masked_head(config, rngs)
        self.max_positions = config.max_positions
        self.config = config

    @property
    def layers(self) -> EncoderStack:
        return self.encoder.stack

    def embedded(
        self,
        tokens_BL: jax.Array,
        key: jax.Array | None = None,
        *,
        positions_BL: jax.Array | None = None,
    ) -> jax.Array:
        if positions_BL is None:
            embeddings.check_length(tokens_BL.shape[1], max_positions=self.max_positions)
        return self.encoder.embedding(tokens_BL, key)

    def views(
        self, mask: Mask, positions_BL: jax.Array, *, bias: jax.Array | None = None
    ) -> list[View]:
        return modernbert.views_through(self.config, mask, positions_BL)

    def normed(self, x_BLD: jax.Array, key: jax.Array | None = None) -> jax.Array:
        return self.encoder.norm(x_BLD)

    def token_scores(self, x_BLD: jax.Array) -> TokenScores:
        return self.mlm.token_scores(x_BLD, self.encoder.tokens)

    def flops(self, batch: Batch) -> jax.Array:
        """Operations of a training step, float32 []; in a window, of the pairs inside it."""
        products = self.encoder.products(segments(batch))
        products += self.tokens(batch) * self.mlm.products(self.encoder.tokens)
        return accounting.step_flops(products)

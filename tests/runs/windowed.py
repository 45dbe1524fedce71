"""A model as a stranger would write it: rotary positions, and a window in every second layer.

None of its parts is called as one of the families that exist. Suffixes: B batch, L length,
K masked positions, D d_model.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, GivesStates, GuessesMasked, States, Want
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.rotary import rotary
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.modules import Embedding
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.heads.masked_lm import at_positions
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import token_sums
from t5x_like.layers.losses.term_loss import TermLoss
from t5x_like.layers.stacks import standard_parts
from t5x_like.layers.stacks.blocks import PRE_NORM
from t5x_like.layers.stacks.encoder import encoder_stack

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(standard_parts.Config):
    vocab_size: int = 384
    d_model: int = 64
    d_ff: int = 128
    num_heads: int = 4
    num_layers: int = 3
    window: int = 4  # positions on each side


class Windowed(TermLoss):
    """Predicts masked tokens; it reads the batches of a BERT."""

    abilities: ClassVar = (GivesStates, GuessesMasked)
    padding: ClassVar = None
    max_tokens: ClassVar = None

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.words = Embedding(config.vocab_size, config.d_model, init=config.init, rngs=rngs)
        made_of = standard_parts.parts(config, PRE_NORM)
        self.blocks = encoder_stack(config, made_of, num_layers=config.num_layers, rngs=rngs)
        self.last_norm = standard_parts.norm(config, rngs)
        self.config = config

    def views(self, batch: Batch) -> tuple[View, View]:
        """Everything, then a window; each with rotary positions of its own."""
        present, config = batch["encoder_attention_mask"], self.config
        positions = jnp.arange(present.shape[1])[None]
        near = Mask(present=present, window=(config.window, config.window))
        return (
            View(mask=Mask(present=present), rotary=rotary(positions, d_kv=config.d_kv)),
            View(mask=near, rotary=rotary(positions, d_kv=config.d_kv, theta=100.0)),
        )

    def read(self, batch: Batch, key: jax.Array | None = None, want: Want = LAST) -> States:
        x_BLD = self.words(batch["encoder_input_tokens"], dtype=self.config.dtype)
        states = self.blocks.encode(x_BLD, views=self.views(batch), key=key, want=want)
        return states._replace(last=self.last_norm(states.last))

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        return self.read(batch, want=want)

    def scores(self, batch: Batch, key: jax.Array | None = None) -> TokenScores:
        x_BKD = at_positions(self.read(batch, key).last, batch["masked_positions"])
        return self.words.token_scores(x_BKD)

    def guesses(self, batch: Batch) -> jax.Array:
        return self.scores(batch).logits()

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        return {"mlm": batch["masked_loss_weights"].astype(jnp.float32).sum()}

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        weights_BK = batch["masked_loss_weights"].astype(jnp.float32)
        scores = self.scores(batch, key)
        sums = token_sums(scores, batch["masked_targets"], weights_BL=weights_BK)
        metrics = {"mlm_accuracy": (sums.correct, weights_BK.sum())}
        return {"mlm": Term(sums.cross_entropy, weights_BK.sum())}, metrics, carry

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        return {"tokens": accounting.count(batch["encoder_attention_mask"])}

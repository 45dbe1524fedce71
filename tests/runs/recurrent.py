"""A model as a stranger would write it: an LSTM that remembers from step to step.

Suffixes: B batch, L length, D d_model.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.basics.modules import Embedding, Linear
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import token_sums
from t5x_like.layers.losses.term_loss import TermLoss

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    vocab_size: int = 384
    d_model: int = 64
    remembers: bool = True  # or drops its state between steps


class Lstm(TermLoss):
    """Predicts each token from those before it, in this step and in earlier ones.

    A batch holds int32 `decoder_input_tokens`, `decoder_target_tokens` and
    `decoder_document_starts`, float32 `decoder_loss_weights`, [B, L] each.
    """

    padding: ClassVar = None

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        width, init = config.d_model, nnx.initializers.normal(0.1)
        self.tokens = Embedding(config.vocab_size, width, init=init, rngs=rngs)
        shape, axes = (2 * width, 4 * width), ("embed", "mlp")
        self.cell = Linear(shape, axes, init=init, dtype="float32", bias=True, rngs=rngs)
        self.config = config

    def initial_carry(self, batch_size: int) -> Carry:
        """The cell and the output, [B, D] each."""
        zeros_BD = jnp.zeros((batch_size, self.config.d_model))
        return zeros_BD, zeros_BD

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        return {"tokens": batch["decoder_loss_weights"].sum()}

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        def read(state: Carry, token: tuple) -> tuple[Carry, jax.Array]:
            x_BD, starts_B = token
            cell_BD, y_BD = (jnp.where(starts_B[:, None] > 0, 0, part_BD) for part_BD in state)
            gates = jnp.split(self.cell(jnp.concatenate([x_BD, y_BD], axis=1)), 4, axis=1)
            forget, write, show = map(jax.nn.sigmoid, gates[:3])
            cell_BD = forget * cell_BD + write * jnp.tanh(gates[3])
            y_BD = show * jnp.tanh(cell_BD)
            return (cell_BD, y_BD), y_BD

        x_BLD = self.tokens(batch["decoder_input_tokens"], dtype="float32")
        by_position = (x_BLD.swapaxes(0, 1), batch["decoder_document_starts"].T)
        carry, y_LBD = jax.lax.scan(read, carry, by_position)
        weights_BL = batch["decoder_loss_weights"]
        scores = self.tokens.token_scores(y_LBD.swapaxes(0, 1))
        sums = token_sums(scores, batch["decoder_target_tokens"], weights_BL=weights_BL)
        metrics = {"accuracy": (sums.correct, weights_BL.sum())}
        if not self.config.remembers:
            carry = jax.tree.map(jnp.zeros_like, carry)
        return {"tokens": Term(sums.cross_entropy, weights_BL.sum())}, metrics, carry

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        return {"tokens": accounting.count(batch["decoder_loss_weights"])}

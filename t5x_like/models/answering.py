"""A pretrained body that answers with a span, or says that there is no answer.

Suffixes: B batch, L length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.families.body import OnBody
from t5x_like.layers.families.encoder_pretraining import row_weights
from t5x_like.layers.heads.span_heads import Answers, ConditionalSpanHead
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import token_sums
from t5x_like.layers.losses.term_loss import TermLoss

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


class Answering(OnBody, TermLoss):
    """A body, as in `finetuned.FineTuned`, with XLNet's head: the end depends on the start.

    A batch holds what the body reads. For the loss it also holds int32 `start_positions` and
    `end_positions`, [B] each, negative in rows to leave out, such as padding. It may hold
    `answer_mask`, int32 [B, L], above 0 where an answer may start and end, and for the loss
    `is_impossible`, [B], 1 where there is no answer.
    """

    def __init__(
        self,
        body: Callable[..., nnx.Module],
        head: Callable[..., ConditionalSpanHead] = ConditionalSpanHead,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.body = body(rngs=rngs)
        config = self.body.config
        self.head = head(config.d_model, dtype=config.dtype, rngs=rngs)
        self.config = config

    @property
    def padding(self) -> int | None:
        """None, as masks tell what is padding (`protocols.Model`)."""
        return None

    @property
    def answer_form(self) -> str:
        """Spans that its head has searched for."""
        return "searched spans"

    def answers(self, batch: Batch) -> Answers:
        """The likeliest answers of each row."""
        return self.head.search(
            self.body.hidden(batch).last,
            counts_BL=batch["encoder_attention_mask"],
            allowed_BL=batch.get("answer_mask"),
        )

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Denominators: `spans` counts starts and ends, `answerable` counts rows."""
        rows = _rows(batch).sum()
        weights = {"spans": 2.0 * rows}
        return weights | {"answerable": rows} if "is_impossible" in batch else weights

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """Cross entropy of starts and ends, plus half that of whether there is an answer.

        Metrics: `accuracy` of starts and ends.
        """
        x_BLD, rows_B = self.body.hidden(batch, key).last, _rows(batch)
        starts_B, ends_B = (
            jnp.maximum(batch[name], 0) for name in ("start_positions", "end_positions")
        )
        scores = self.head.given(
            x_BLD,
            starts_B,
            counts_BL=batch["encoder_attention_mask"],
            allowed_BL=batch.get("answer_mask"),
        )
        sums = token_sums(
            jnp.stack([scores.start, scores.end], axis=1),
            jnp.stack([starts_B, ends_B], axis=1),
            weights_BL=jnp.stack([rows_B, rows_B], axis=1),
        )
        here = rows_B.sum()
        terms = {"spans": Term(sums.cross_entropy, 2.0 * here)}
        if "is_impossible" in batch:
            logit_B = scores.unanswerable
            # With logit x, log(1 + e^x) is -log of the probability of the opposite.
            cross_entropy_B = jax.nn.softplus(logit_B) - logit_B * batch["is_impossible"]
            terms["answerable"] = Term((cross_entropy_B * rows_B).sum(), here, 0.5)
        return terms, {"accuracy": (sums.correct, 2.0 * here)}, carry

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        """Counts tokens only."""
        return {"tokens": accounting.count(batch["encoder_attention_mask"])}


def _rows(batch: Batch) -> jax.Array:
    """1 for the rows that are scored, which hold text: float32 [B]."""
    scored = (batch["start_positions"] >= 0) & (batch["end_positions"] >= 0)
    return scored * row_weights(batch)

"""The pretraining of encoders: masked tokens and, where there is a head, pairs of sentences.

Suffixes: B batch, L length, D d_model, K masked positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import Body, CountsFlops, GivesStates, GuessesMasked
from t5x_like.layers.basics import activations
from t5x_like.layers.basics.modules import Embedding
from t5x_like.layers.families.body import WithEncoder
from t5x_like.layers.heads.label_heads import SequenceHead, first
from t5x_like.layers.heads.masked_lm import (
    MaskedLanguageHead,
    UntiedHead,
    at_positions,
    masked_sums,
)
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import token_sums
from t5x_like.layers.losses.term_loss import TermLoss

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


SENTENCE_LABELS = ("next_sentence_label", "sentence_order_label")
"""Objectives' names for the label of a pair: next sentence and sentence order."""


class PretrainedEncoder(Body, Protocol):
    """The members that a family's encoder needs to be pretrained."""

    @property
    def tokens(self) -> Embedding:
        """The token table."""

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of a row; None for any number."""

    def products(self, counts_BL: jax.Array) -> jax.Array:
        """Multiply-adds of a forward pass, float32 []."""


class Pretraining(TermLoss):
    """A model that is pretrained on the batches of `EncoderPretraining`."""

    @property
    def padding(self) -> int | None:
        """None, as masks tell what is padding (`protocols.Model`)."""
        return None

    def flops(self, batch: Batch) -> jax.Array:
        """Floating point operations of a training step on this batch, float32 [].

        It counts matrix products only, backward twice forward, without padding and masked slots
        that have no weight.
        """
        raise NotImplementedError

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        tokens = accounting.count(batch["encoder_attention_mask"])
        return {"tokens": tokens, "flops": self.flops(batch)}


def sentence_head(config: Any, rngs: nnx.Rngs) -> SequenceHead:
    """The pooler and the two classes of a pair of sentences."""
    return SequenceHead(
        config.d_model,
        2,
        pool=first,
        init=config.init,
        activation=activations.tanh,
        dtype=config.dtype,
        rngs=rngs,
    )


class MaskedPretraining(WithEncoder, Pretraining):
    """An encoder whose loss is the mean over masked tokens, plus the mean over pairs.

    A batch holds int32 `encoder_input_tokens`, `encoder_attention_mask` (1 for tokens, 0 for
    padding) and `encoder_token_type_ids`, [B, L] each; int32 `masked_positions` and
    `masked_targets`, float32 `masked_loss_weights`, [B, K] each; and, where there is a head for it,
    the label of a pair, int32 [B], under one of `SENTENCE_LABELS`. A row of padding has weight 0.
    """

    config: Any
    sentence: SequenceHead | None

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Denominators: `mlm` masked tokens, `sentence` rows."""
        masked = {"mlm": batch["masked_loss_weights"].astype(jnp.float32).sum()}
        return masked if self.sentence is None else masked | {"sentence": row_weights(batch).sum()}

    def sentence_terms(self, x_BLD: jax.Array, batch: Batch) -> tuple[dict[str, Term], Metrics]:
        """The term of pairs and its metric, where there is a head, which reads states."""
        if self.sentence is None:
            return {}, {}
        rows_B = row_weights(batch)
        tokens_BL, counts_BL = batch["encoder_input_tokens"], batch["encoder_attention_mask"]
        logits_BC = self.sentence(x_BLD, tokens_BL, counts_BL)
        labels_B = batch[_sentence_label(batch)]
        sums = token_sums(logits_BC[:, None], labels_B[:, None], weights_BL=rows_B[:, None])
        terms = {"sentence": Term(sums.cross_entropy, rows_B.sum())}
        return terms, {"sentence_accuracy": (sums.correct, rows_B.sum())}


class EncoderPretraining(MaskedPretraining):
    """A `MaskedPretraining` whose head scores all tokens at each masked position.

    Packed rows have what `bert.Encoder` reads of them.
    """

    encoder: PretrainedEncoder
    abilities = (CountsFlops, GivesStates, GuessesMasked)
    mlm: MaskedLanguageHead | UntiedHead

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """`mlm`, over masked tokens, and where there is a head `sentence`, over rows.

        Metrics: `mlm_accuracy`, `mlm_pseudo_perplexity`, `sentence_accuracy`.
        """
        terms, metrics = self.terms_of(self.encoder.hidden(batch, key).last, batch)
        return terms, metrics, carry

    def terms_of(self, x_BLD: jax.Array, batch: Batch) -> tuple[dict[str, Term], Metrics]:
        """Computes `terms` from the encoder's states; a family with more terms adds them here."""
        terms, metrics = self.masked_terms(at_positions(x_BLD, batch["masked_positions"]), batch)
        of_pairs, more = self.sentence_terms(x_BLD, batch)
        return terms | of_pairs, metrics | more

    def masked_terms(self, x_BKD: jax.Array, batch: Batch) -> tuple[dict[str, Term], Metrics]:
        """The term of masked tokens and its metrics, from the states at their positions."""
        masked = batch["masked_loss_weights"].astype(jnp.float32).sum()
        sums = masked_sums(self.mlm, x_BKD, self.encoder.tokens, batch=batch)
        metrics: Metrics = {
            "mlm_accuracy": (sums.correct, masked),
            "mlm_pseudo_perplexity": (sums.nll, masked),
        }
        return {"mlm": Term(sums.cross_entropy, masked)}, metrics

    def masked_states(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """The states at masked positions that the head reads, [B, K, D]."""
        return at_positions(self.encoder.hidden(batch, key).last, batch["masked_positions"])

    def logits(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """The masked language model's logits at every position, float32 [B, L, V]."""
        return self.mlm(self.encoder.hidden(batch, key).last, self.encoder.tokens)

    def guesses(self, batch: Batch) -> jax.Array:
        """The masked language model's logits at `masked_positions`, float32 [B, K, V]."""
        return self.mlm(self.masked_states(batch), self.encoder.tokens)

    def sentence_logits(self, batch: Batch) -> jax.Array:
        """The logits of the pair, float32 [B, 2]; only where there is a head for it."""
        if self.sentence is None:
            raise ValueError("this model has no head for pairs of sentences")
        x_BLD = self.encoder.hidden(batch).last
        return self.sentence(x_BLD, batch["encoder_input_tokens"], batch["encoder_attention_mask"])

    def body_products(self, batch: Batch) -> jax.Array:
        """Multiply-adds of a forward pass until the heads, float32 []."""
        return self.encoder.products(texts(batch))

    def flops(self, batch: Batch) -> jax.Array:
        masked = accounting.count(batch["masked_loss_weights"])
        products = self.body_products(batch)
        products += masked * self.mlm.products(self.encoder.tokens)
        if self.sentence is not None:
            products += row_weights(batch).sum() * accounting.matrix_size(self.sentence)
        return accounting.step_flops(products)


def _sentence_label(batch: Batch) -> str:
    for name in SENTENCE_LABELS:
        if name in batch:
            return name
    raise ValueError(
        "this model has a head for pairs of sentences, but the objective makes no pairs: choose "
        "one with a sentence task, such as mlm_nsp or mlm_sop, or turn off sentence_head"
    )


def texts(batch: Batch) -> jax.Array:
    """The number of each token's text in its row, from 1; 0 for padding: int32 [B, L]."""
    numbers_BL: jax.Array = batch.get("encoder_segment_ids", batch["encoder_attention_mask"])
    return numbers_BL


def row_weights(batch: Batch) -> jax.Array:
    """1 for a row that holds text, 0 for one of padding: float32 [B]."""
    return (batch["encoder_attention_mask"] > 0).any(axis=1).astype(jnp.float32)

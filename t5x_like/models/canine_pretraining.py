"""CANINE-C and CANINE-S: a CANINE with the heads of its pretraining (CANINE, section 3.3).

Nobody published the code of pretraining: these losses follow the paper's words.

Suffixes: B batch, L characters, K masked positions, D d_model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import CountsFlops, GivesStates
from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.dropout import subkeys
from t5x_like.layers.basics.modules import Embedding
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.families.encoder_pretraining import (
    MaskedPretraining,
    row_weights,
    sentence_head,
)
from t5x_like.layers.heads.masked_lm import MaskedLanguageHead, at_positions
from t5x_like.layers.heads.permuted_characters import PermutedCharacters
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import token_sums
from t5x_like.models.canine import Config, Encoder

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


class Canine(MaskedPretraining):
    """What both CANINEs share: a term of masked positions, and one of pairs of sentences.

    A batch is one of `MaskedPretraining`. A subclass defines how masked positions are scored.
    """

    abilities = (CountsFlops, GivesStates)
    encoder: Encoder
    of_characters: ClassVar[bool] = True  # what is predicted; a unigram model knows their shares

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(config, rngs=rngs)
        self.sentence = sentence_head(config, rngs) if config.sentence_head else None
        self.config = config

    def scores(self, x_BKD: jax.Array, batch: Batch, key: jax.Array | None) -> TokenScores:
        """The scores of what `targets` are, from the states at masked positions."""
        raise NotImplementedError

    def targets(self, batch: Batch) -> jax.Array:
        """The row of the scores that is right for each masked position, int32 [B, K]."""
        raise NotImplementedError

    def products_of_scores(self, weights_BK: jax.Array) -> jax.Array:
        """Multiply-adds of the scores of a batch's masked positions, float32 []."""
        raise NotImplementedError

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """`mlm`, over masked positions, and where there is a head `sentence`, over rows.

        Metrics: `mlm_accuracy`, `sentence_accuracy`, and `mlm_perplexity` of characters.
        """
        keys = subkeys(key, 2)
        weights_BK = batch["masked_loss_weights"].astype(jnp.float32)
        x_BKD, molecules_BMD = self.encoder.predicting(batch, keys[0])
        scores = self.scores(x_BKD, batch, keys[1])
        sums = token_sums(scores, self.targets(batch), weights_BL=weights_BK)
        masked = weights_BK.sum()
        metrics: Metrics = {"mlm_accuracy": (sums.correct, masked)}
        if self.of_characters:
            metrics["mlm_perplexity"] = (sums.nll, masked)
        terms = {"mlm": Term(sums.cross_entropy, masked)}
        of_pairs, more = self.sentence_terms(molecules_BMD, batch)
        return terms | of_pairs, metrics | more, carry

    def flops(self, batch: Batch) -> jax.Array:
        weights_BK = batch["masked_loss_weights"]
        products = self.encoder.products_of_predicting(
            batch["encoder_attention_mask"], accounting.count(weights_BK), weights_BK
        )
        products += self.products_of_scores(weights_BK)
        if self.sentence is not None:
            products += row_weights(batch).sum() * accounting.matrix_size(self.sentence)
        return accounting.step_flops(products)


class CanineC(Canine):
    """CANINE-C: masked characters, one after another in the order of a row's masked positions."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, rngs=rngs)
        self.characters = PermutedCharacters(config, config.num_buckets, rngs=rngs)

    def scores(self, x_BKD: jax.Array, batch: Batch, key: jax.Array | None) -> TokenScores:
        """Those of buckets of characters."""
        keys = subkeys(key, 2)
        positions_BK = batch["masked_positions"]
        rows = jnp.arange(len(positions_BK))[:, None]
        tokens_BL = batch["encoder_input_tokens"]
        given = batch["masked_loss_weights"] > 0
        # A slot without a weight has position 0, where it must not write.
        places_BK = jnp.where(given, positions_BK, tokens_BL.shape[1])
        gold_BL = tokens_BL.at[rows, places_BK].set(batch["masked_targets"], mode="drop")
        gold_BKD = at_positions(self.encoder.embedded(gold_BL, batch, keys[0]), positions_BK)
        return self.characters.token_scores(
            x_BKD, gold_BKD, batch["masked_loss_weights"], key=keys[1]
        )

    def targets(self, batch: Batch) -> jax.Array:
        """The buckets of the characters."""
        return self.characters.buckets(batch["masked_targets"])

    def products_of_scores(self, weights_BK: jax.Array) -> jax.Array:
        return self.characters.products(weights_BK)


class CanineS(Canine):
    """CANINE-S: the subword of another vocabulary that begins at each masked position.

    A batch also holds int32 `masked_subwords`, [B, K], below `num_subwords`: others have NaN as
    their loss. The table of subwords serves pretraining alone.
    """

    of_characters = False

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, rngs=rngs)
        width = config.d_model
        self.subwords = above(Embedding(config.num_subwords, width, init=config.init, rngs=rngs))
        self.mlm = MaskedLanguageHead(
            (width, width),
            config.num_subwords,
            init=config.init,
            activation=config.activation,
            epsilon=config.norm_epsilon,
            dtype=config.dtype,
            rngs=rngs,
        )

    def scores(self, x_BKD: jax.Array, batch: Batch, key: jax.Array | None) -> TokenScores:
        """Those of subwords."""
        given = batch["masked_subwords"] < self.config.num_subwords
        return self.mlm.token_scores(jnp.where(given[..., None], x_BKD, jnp.nan), self.subwords)

    def targets(self, batch: Batch) -> jax.Array:
        """The subwords."""
        return batch["masked_subwords"]

    def products_of_scores(self, weights_BK: jax.Array) -> jax.Array:
        return accounting.count(weights_BK) * self.mlm.products(self.subwords)

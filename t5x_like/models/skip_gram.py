"""Skip-gram with negative sampling: a vector for each word (Mikolov et al., 2013).

Suffixes: B batch, L length, W the farthest that a word sees, O places around it (2 W), N negatives,
D d_model.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.core.abilities import LAST, CountsFlops, GivesStates, States, Want
from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.modules import ZEROS, Embedding, around_zero, param
from t5x_like.layers.families.encoder_pretraining import texts
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.term_loss import TermLoss
from t5x_like.layers.stacks.transformer_config import check_fields

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The numbers of words and of a vector; the defaults are those of the published vectors."""

    vocab_size: int = 692_000
    d_model: int = 300
    dtype: DTypeLike = "float32"

    def __post_init__(self) -> None:
        check_fields(self)


class SkipGram(TermLoss):
    """Tells the words around a word from words drawn at random, by products of two vectors.

    A batch holds int32 `encoder_input_tokens` and `encoder_attention_mask`, [B, L] each, `reach`
    [B, L, W] and `negatives` [B, L, N], as `objectives.skip_gram` makes them. A word has a vector
    as an input, which is the one that is used afterwards, and another one as an output. In packed
    rows (`encoder_segment_ids`) a word sees words of its own text alone.
    """

    abilities: ClassVar[tuple[type, ...]] = (CountsFlops, GivesStates)
    padding: ClassVar = None
    max_tokens: ClassVar = None

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        shape = (config.vocab_size, config.d_model)
        self.embedding = Embedding(*shape, init=around_zero(0.5 / config.d_model), rngs=rngs)
        self.output_table = above(
            param(
                ZEROS,
                shape,
                axes=("vocab", "embed"),
                multiplied=False,
                compute_dtype=config.dtype,
                rngs=rngs,
            )
        )
        self.config = config

    def hidden(self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST) -> States:
        """The vectors of words, whatever is around them."""
        x_BLD = self.embedding(batch["encoder_input_tokens"], dtype=self.config.dtype)
        return States(x_BLD, x_BLD[None] if want.states else None)

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        return self.hidden(batch, want=want)

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """-log sigmoid(v u) of a word and one around it, and -log sigmoid(-v n) of each negative.

        The sum over the negatives is a part of a pair's loss (section 2.2). Negatives that are the
        word itself do not count. Metrics: `loss`, and `accuracy`, the share of pairs whose word
        scores higher than all negatives.
        """
        tokens_BL, pairs_BLO = batch["encoder_input_tokens"], _pairs(batch)
        x_BLD = self.hidden(batch).last
        table = self.output_table[...].astype(self.config.dtype)
        around_BLOD = _around(x_BLD, batch["reach"].shape[-1])
        own_BLO = jnp.einsum("blod,bld->blo", around_BLOD, table[tokens_BL])
        others_BLON = jnp.einsum("blod,blnd->blon", around_BLOD, table[batch["negatives"]])
        own_BLO, others_BLON = (x.astype(jnp.float32) for x in (own_BLO, others_BLON))
        counts_BLN = batch["negatives"] != tokens_BL[..., None]
        of_others_BLO = (jax.nn.softplus(others_BLON) * counts_BLN[:, :, None]).sum(-1)
        loss = ((jax.nn.softplus(-own_BLO) + of_others_BLO) * pairs_BLO).sum()
        best_BLO = jnp.where(counts_BLN[:, :, None], others_BLON, -jnp.inf).max(-1)
        right = ((own_BLO > best_BLO) * pairs_BLO).sum()
        here = pairs_BLO.sum()
        metrics = {"loss": (loss, here), "accuracy": (right, here)}
        return {"pairs": Term(loss, here)}, metrics, carry

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The number of pairs."""
        return {"pairs": _pairs(batch).sum()}

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        return {
            "tokens": accounting.count(batch["encoder_attention_mask"]),
            "flops": self.flops(batch),
        }

    def flops(self, batch: Batch) -> jax.Array:
        each = (1 + batch["negatives"].shape[-1]) * self.config.d_model
        return accounting.step_flops(_pairs(batch).sum() * each)


def _around(x_BLD: jax.Array, reach: int) -> jax.Array:
    """What is 1, 2, ... places before and after each place, [B, L, O, D]; zeros beyond the row."""
    length = x_BLD.shape[1]
    wide = jnp.pad(x_BLD, [(0, 0), (reach, reach), *[(0, 0)] * (x_BLD.ndim - 2)])
    steps = [sign * step for step in range(1, reach + 1) for sign in (-1, 1)]
    return jnp.stack([wide[:, reach + n : reach + n + length] for n in steps], axis=2)


def _pairs(batch: Batch) -> jax.Array:
    """1 for places that a word sees and that hold a word of its text, float32 [B, L, O]."""
    texts_BL = texts(batch)
    same_BLO = _around(texts_BL, batch["reach"].shape[-1]) == texts_BL[..., None]
    seen_BLO = same_BLO & (texts_BL > 0)[..., None]
    return (jnp.repeat(batch["reach"], 2, axis=-1) * seen_BLO).astype(jnp.float32)

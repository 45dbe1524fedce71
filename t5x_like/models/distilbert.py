"""DistilBERT: a BERT with half the layers that learns from a full one (Sanh et al., 2019).

Suffixes: B batch, L length, D d_model, K masked positions, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.basics.dropout import Dropouts
from t5x_like.layers.basics.modules import Init
from t5x_like.layers.heads.masked_lm import at_positions
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.distillation import cosine_distances, kl_divergences
from t5x_like.models import bert

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(bert.Config):
    """Architecture and loss of a DistilBERT; the defaults are DistilBERT's, uncased (section 3)."""

    num_layers: int = 6
    type_vocab_size: int = 0
    sentence_head: bool = False
    initializer: Callable[..., Init] = nnx.initializers.normal
    temperature: float = 2.0
    kl_weight: float = 5.0
    mlm_weight: float = 2.0
    cosine_weight: float = 1.0
    kl_of_masked_only: bool = False  # False: of all tokens

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature > 0:
            raise ValueError(
                f"distilbert.Config.temperature must be above 0, got {self.temperature}"
            )

    @property
    def dropouts(self) -> Dropouts:
        """No dropout of what attention adds (the published code)."""
        return dataclasses.replace(super().dropouts, after_attention=False)


class DistilBert(bert.Bert):
    """A student: a BERT without token types and pooler, whose loss needs a teacher.

    A batch also holds the teacher's outputs, which `teach` adds: `teacher_logits`
    [B, L, V] and `teacher_states` [B, L, D].
    """

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Denominators: `mlm` masked tokens, `cosine` all tokens, `kl` one of the two."""
        masked = super().weights(batch)
        tokens = accounting.count(batch["encoder_attention_mask"])
        kl = masked["mlm"] if self.config.kl_of_masked_only else tokens
        return {**masked, "kl": kl, "cosine": tokens}

    def terms_of(self, x_BLD: jax.Array, batch: Batch) -> tuple[dict[str, Term], Metrics]:
        """Three terms (section 3).

        `mlm`; `kl`, T^2 KL(teacher || student) at temperature T; and `cosine`, 1 - cos of the last
        states.

        Raises:
          ValueError: the batch lacks the teacher's outputs, or they have another width or another
            number of ids.
        """
        teacher_BLV, teacher_BLD = _taught(batch, self.config)
        config, weights = self.config, self.weights(batch)
        terms, metrics = super().terms_of(x_BLD, batch)
        tokens_BL = (batch["encoder_attention_mask"] > 0).astype(jnp.float32)
        compared, counts = x_BLD, tokens_BL
        if config.kl_of_masked_only:
            positions_BK = batch["masked_positions"]
            teacher_BLV = jnp.take_along_axis(teacher_BLV, positions_BK[..., None], axis=1)
            compared = at_positions(x_BLD, positions_BK)
            counts = batch["masked_loss_weights"].astype(jnp.float32)
        student_BLV = self.mlm(compared, self.encoder.tokens)
        kl = kl_divergences(teacher_BLV, student_BLV, temperature=config.temperature)
        cosine = cosine_distances(x_BLD, teacher_BLD) * tokens_BL
        return {
            "mlm": terms["mlm"]._replace(coefficient=config.mlm_weight),
            "kl": Term((kl * counts).sum(), weights["kl"], config.kl_weight),
            "cosine": Term(cosine.sum(), weights["cosine"], config.cosine_weight),
        }, metrics

    def flops(self, batch: Batch) -> jax.Array:
        """A BERT's operations and those of the logits that are compared, without the teacher's."""
        if self.config.kl_of_masked_only:
            return super().flops(batch)
        each = accounting.matrix_size(self.mlm) + float(self.encoder.tokens.table.size)
        tokens = accounting.count(batch["encoder_attention_mask"])
        return super().flops(batch) + accounting.step_flops(tokens * each)


def teach(teacher: bert.Bert, batch: Batch) -> Batch:
    """`batch` with the teacher's `teacher_logits` and `teacher_states`.

    Without dropout; no gradient passes.
    """
    x_BLD = teacher.encoder.hidden(batch).last
    logits_BLV = teacher.mlm(x_BLD, teacher.encoder.tokens)
    answers = {"teacher_logits": logits_BLV, "teacher_states": x_BLD}
    return {**batch, **jax.lax.stop_gradient(answers)}


def _taught(batch: Batch, config: Config) -> tuple[jax.Array, jax.Array]:
    names = ("teacher_logits", "teacher_states")
    if missing := [name for name in names if name not in batch]:
        raise ValueError(
            f"a DistilBERT learns from a teacher, but the batch has no {' and no '.join(missing)}: "
            "distilbert.teach(teacher, batch) adds them, as a run with a TEACHER does"
        )
    logits_BLV, states_BLD = (jax.lax.stop_gradient(batch[name]) for name in names)
    if states_BLD.shape[-1] != config.d_model:
        raise ValueError(
            f"the teacher's states have width {states_BLD.shape[-1]}, the student's "
            f"{config.d_model}: they are compared by their angle, and must be as wide"
        )
    if logits_BLV.shape[-1] != config.vocab_size:
        raise ValueError(
            f"the teacher scores {logits_BLV.shape[-1]} ids, the student {config.vocab_size}: set "
            f"--gin.distilbert.Config.vocab_size={logits_BLV.shape[-1]}"
        )
    return logits_BLV, states_BLD

"""Marks the tokens of a text that an ELECTRA takes for replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from t5x_like.inference import text_rows
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.text_rows import Framing

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

_LEAST = 0.5


@dataclasses.dataclass(frozen=True)
class ReplacedTokens:
    """The predictor of discriminators (`predictions.Predictor`; ELECTRA, section 2)."""

    model: ModelOnMesh
    framing: Framing
    batch_size: int = text_rows.ROWS

    def check(self, record: Mapping[str, Any]) -> None:
        """Every text can be marked."""

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """`tokens`, the probability of each that it was `replaced`, and those above one half."""
        rows = [self.framing.text(record["inputs"]) for record in records]
        answers: list[dict[str, Any]] = [{}] * len(rows)
        piece = self.framing.vocabulary.piece
        for batch in self.framing.batches(rows, self.model.rows(self.batch_size)):
            chances = np.asarray(jax.nn.sigmoid(self.model(_logits, batch.of_encoder)))
            for place, n in enumerate(batch.numbers):
                marked = [
                    (piece(token), float(chance))
                    for token, chance in zip(rows[n].tokens, chances[place], strict=False)
                    if self.framing.is_text(token)
                ]
                answers[n] = {
                    "tokens": [token for token, _ in marked],
                    "probabilities": [chance for _, chance in marked],
                    "replaced": [token for token, chance in marked if chance > _LEAST],
                } | ({"truncated": True} if rows[n].truncated else {})
        return answers


@jax.jit
def marked(model: Any, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The answers of a model that `ReplacesTokens` for rows of its objective, [B, L] each.

    Returns:
      The tokens it reads and the original ones, int32; float32 probabilities of a replacement.
    """
    read = model.replaced_by_itself(batch)
    chances_BL = jax.nn.sigmoid(_logits(model, read))
    return read["encoder_input_tokens"], read["encoder_original_tokens"], chances_BL


@jax.jit
def _logits(model: Any, batch: Batch) -> jax.Array:
    """Logits that a token was replaced, float32 [B, L]."""
    return model.marks(batch)

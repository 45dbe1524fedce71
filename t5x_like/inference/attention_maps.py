"""Attention maps of texts: the probabilities of every layer and head.

Suffixes: B batch, N layers, H heads, L length, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from t5x_like.core.abilities import Want
from t5x_like.inference import text_rows
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.text_rows import Framing, Row

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


class AttentionMap(NamedTuple):
    """A text's tokens as the vocabulary writes them, and float32 [N, H, T, T].

    Row i of a map has the probabilities with which token i looks at each token, before dropout.
    """

    tokens: list[str]
    probabilities: np.ndarray


def attention_maps(
    model: ModelOnMesh, framing: Framing, rows: Sequence[Row], *, batch_size: int = text_rows.ROWS
) -> list[AttentionMap]:
    """The map of each row, by a model that `GivesStates`."""
    maps: dict[int, AttentionMap] = {}
    for batch in framing.batches(rows, model.rows(batch_size)):
        attention_BNHLL = np.asarray(model(_attention, batch.of_encoder), np.float32)
        for place, number in enumerate(batch.numbers):
            tokens = [framing.vocabulary.piece(token) for token in rows[number].tokens]
            count = len(tokens)
            maps[number] = AttentionMap(tokens, attention_BNHLL[place, :, :, :count, :count])
    return [maps[number] for number in range(len(rows))]


@jax.jit
def _attention(model: Any, batch: Batch) -> jax.Array:
    return jax.numpy.moveaxis(model.states(batch, want=Want(attention=True)).attention, 1, 0)

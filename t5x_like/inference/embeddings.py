"""States of texts as vectors: of a layer, of all layers mixed, of each token or of a whole text.

Suffixes: B batch, L length, N layers, D d_model.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from t5x_like.core.abilities import Want
from t5x_like.inference import text_rows
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.text_rows import Framing, Row

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

Pooling = Literal["mean", "first", "last", "max", "tokens"]
POOLINGS = get_args(Pooling)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embeddings:
    """The predictor of vectors (`predictions.Predictor`).

    Attributes:
      model: one that `GivesStates`.
      framing: of texts.
      layer: the layer whose output is read: 0 is the first one's input, -1 the last. A list of
        weights, one for each of these N + 1 states, mixes them in these proportions (ELMo, equation
        1).
      pooling: the vector of a text: the mean, the largest values, the first or the last of its
        tokens' states, special tokens included; "tokens" gives a vector for each.
      batch_size: the texts of a batch.
    """

    model: ModelOnMesh
    framing: Framing
    layer: int | Sequence[float] = -1
    pooling: Pooling = "mean"
    batch_size: int = text_rows.ROWS

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, not {self.pooling!r}")

    def check(self, record: Mapping[str, Any]) -> None:
        """Every text has states."""

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """`embedding`: a list of numbers, or one for each of the `tokens`."""
        rows = [self.framing.text(record["inputs"]) for record in records]
        vectors = self.vectors(rows)
        piece = self.framing.vocabulary.piece
        return [
            {"embedding": vector.tolist()}
            | ({"tokens": [*map(piece, row.tokens)]} if self.pooling == "tokens" else {})
            | ({"truncated": True} if row.truncated else {})
            for row, vector in zip(rows, vectors, strict=True)
        ]

    def depth(self) -> int:
        """The number of the model's layers."""
        (batch,) = self.framing.batches([self.framing.text("a")], self.model.rows(1))
        return int(self.model(_all_states, batch.of_encoder).shape[0]) - 1

    def vectors(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """Float32 [d_model] for each row, or [tokens, d_model] with the pooling "tokens".

        Raises:
          ValueError: the model has no such layer, or a row is longer than it has
            positions.
        """
        layer = self.layer if isinstance(self.layer, int) else tuple(self.layer)
        row_vectors: list[np.ndarray] = [np.zeros(0)] * len(rows)
        for batch in self.framing.batches(rows, self.model.rows(self.batch_size)):
            states = self.model(_states, batch.of_encoder, layer=layer)
            if self.pooling != "tokens":
                states = _pool(states, batch.counts, pooling=self.pooling)
            vectors = np.asarray(states, np.float32)
            for place, n in enumerate(batch.numbers):
                whole = vectors[place]
                row_vectors[n] = whole[: len(rows[n].tokens)] if self.pooling == "tokens" else whole
        return row_vectors


@jax.jit
def _all_states(model: Any, batch: Batch) -> jax.Array:
    """The input of the first layer and the output of each, [N + 1, B, L, D]."""
    return model.states(batch, want=Want(states=True)).states


@functools.partial(jax.jit, static_argnames="layer")
def _states(model: Any, batch: Batch, *, layer: int | tuple[float, ...]) -> jax.Array:
    """The wanted states, [B, L, D]."""
    if layer == -1:
        return model.states(batch).last
    states_NBLD = _all_states(model, batch)
    count = len(states_NBLD)
    if isinstance(layer, int):
        if not -count <= layer < count:
            raise ValueError(f"layer must be from {-count} to {count - 1}, not {layer}")
        return states_NBLD[layer]
    if len(layer) != count:
        raise ValueError(f"a mix of this model's layers takes {count} weights, not {len(layer)}")
    weights_N = jnp.asarray(layer) / sum(layer)
    return jnp.einsum("n,nbld->bld", weights_N, states_NBLD.astype(jnp.float32))


@functools.partial(jax.jit, static_argnames="pooling")
def _pool(x_BLD: jax.Array, counts_BL: jax.Array, *, pooling: str) -> jax.Array:
    """One vector a row, float32 [B, D]."""
    x_BLD, counts_BL1 = x_BLD.astype(jnp.float32), counts_BL[..., None] > 0
    match pooling:
        case "mean":
            total_BD = jnp.where(counts_BL1, x_BLD, 0).sum(axis=1)
            return total_BD / jnp.maximum(counts_BL1.sum(axis=1), 1)
        case "max":
            return jnp.where(counts_BL1, x_BLD, -jnp.inf).max(axis=1)
        case "first":
            return x_BLD[:, 0]
    last_B = jnp.maximum(counts_BL.sum(axis=1) - 1, 0)
    return jnp.take_along_axis(x_BLD, last_B[:, None, None], axis=1)[:, 0]

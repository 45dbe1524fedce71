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

from t5x_like.inference import text_rows
from t5x_like.inference.model_on_mesh import ModelOnMesh
from t5x_like.inference.text_rows import Framing, Row

if TYPE_CHECKING:
    from t5x_like.core.protocols import Batch

Pooling = Literal["mean", "first", "last", "max", "tokens"]
POOLINGS = get_args(Pooling)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embeddings:
    """The predictor of vectors (`predictions.Predictor`).

    Attributes:
      model: any body; the states are the encoder's, where there is one.
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
        found = self.vectors(rows)
        piece = self.framing.vocabulary.piece
        return [
            {"embedding": vector.tolist()}
            | ({"tokens": [*map(piece, row.tokens)]} if self.pooling == "tokens" else {})
            | ({"truncated": True} if row.truncated else {})
            for row, vector in zip(rows, found, strict=True)
        ]

    def vectors(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """Float32 [d_model] for each row, or [tokens, d_model] with the pooling "tokens".

        Raises:
          ValueError: the model gives no states, has no such layer, or a row is longer than it has
            positions.
        """
        read = _reader(self.model.model)
        layer = self.layer if isinstance(self.layer, int) else tuple(self.layer)
        found: list[np.ndarray] = [np.zeros(0)] * len(rows)
        for batch in self.framing.batches(rows, self.model.rows(self.batch_size)):
            states = self.model(_states, batch.of_encoder, read=read, layer=layer)
            if self.pooling != "tokens":
                states = _pool(states, batch.counts, pooling=self.pooling)
            vectors = np.asarray(states, np.float32)
            for place, n in enumerate(batch.numbers):
                whole = vectors[place]
                found[n] = whole[: len(rows[n].tokens)] if self.pooling == "tokens" else whole
        return found


@functools.partial(jax.jit, static_argnames=("read", "layer"))
def _states(model: Any, batch: Batch, *, read: Any, layer: int | tuple[float, ...]) -> jax.Array:
    """The wanted states, [B, L, D]."""
    if layer == -1:
        return read(model, batch).last
    states_NBLD = read(model, batch, return_hidden=True).states
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


def _reader(model: Any) -> Any:
    """A function from the model and an encoder's batch to its states."""
    if hasattr(model, "encode"):
        return _of_encoder_decoder
    body = _body(model)
    if hasattr(body, "sights"):  # an XLNet reads from both sides, although it also writes
        return _of_body
    if hasattr(body, "prefill"):
        return _of_decoder
    if hasattr(body, "hidden"):
        return _of_body
    raise ValueError(f"a {type(model).__name__} gives no states")


def _of_encoder_decoder(model: Any, batch: Batch, **wanted: bool) -> Any:
    mask = batch["encoder_attention_mask"]
    return model.encode(batch["encoder_input_tokens"], mask_BM=mask, **wanted)


def _of_decoder(model: Any, batch: Batch, **wanted: bool) -> Any:
    return _body(model).hidden({"decoder_input_tokens": batch["encoder_input_tokens"]}, **wanted)


def _of_body(model: Any, batch: Batch, **wanted: bool) -> Any:
    return _body(model).hidden(batch, **wanted)


def _body(model: Any) -> Any:
    """The encoder of a pretraining model, the body of one with a task's head, or the model."""
    return getattr(model, "encoder", getattr(model, "body", model))

"""The input of a two-stream model, and its masks: orders, padding, segments, memory.

Suffixes: B batch, L length, P predicted positions, Q queries (L or P), M memory, T = M + L keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.relative_attention import RelativeView

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


class Targets(NamedTuple):
    """Positions to predict, int32 [B, P], and what they see of the row; None: everything."""

    positions: jax.Array
    mask: Mask | None = None


class Reading(NamedTuple):
    """The input of a pass of the model.

    Attributes:
      tokens: int32 [B, L].
      types: int32 [B, L], segments, compared only for equality; None: one. Memory is in segment 0.
      mask: what each position sees of the row; None: all.
      targets: None where nothing is predicted.
      backward: bool [B], rows of reversed text; None: none.
    """

    tokens: jax.Array
    types: jax.Array | None = None
    mask: Mask | None = None
    targets: Targets | None = None
    backward: jax.Array | None = None


def content_alone(batch: Batch) -> Reading:
    """Every position sees itself and the tokens that are not padding."""
    mask = Mask(present=batch["encoder_attention_mask"] > 0, itself=True)
    return Reading(batch["encoder_input_tokens"], batch.get("encoder_token_type_ids"), mask)


def permuted(batch: Batch) -> Reading:
    """Positions see what comes before them in an order (XLNet, section 2.3).

    Position i sees itself, and every j that is not padding where
    `permutation_query_order[i] > permutation_key_order[j]`, int32 [B, L] each. A position among
    `masked_positions` does not see itself while it is being predicted.
    """
    positions_BP, query_BL = batch["masked_positions"], batch["permutation_query_order"]
    counts_BL = batch["encoder_attention_mask"] > 0
    key_BL = jnp.where(counts_BL, batch["permutation_key_order"], jnp.iinfo(jnp.int32).max)
    query_BP = jnp.take_along_axis(query_BL, positions_BP, axis=1)
    keys = Traits(order=key_BL)
    return Reading(
        batch["encoder_input_tokens"],
        batch.get("encoder_token_type_ids"),
        Mask(queries=Traits(order=query_BL), keys=keys, itself=True),
        Targets(positions_BP, Mask(queries=Traits(order=query_BP), keys=keys)),
        batch["backward"] > 0,
    )


def masks(
    reading: Reading, *, memory_len: int, causal: bool, same_length: bool
) -> Sequence[Mask | None]:
    """The masks of the content and, if any, of the predicted positions; all see the memory.

    Args:
      reading: the rows, without memory.
      memory_len: M.
      causal: whether keys after a query are hidden.
      same_length: whether keys more than M before a query are hidden, too.
    """
    length = reading.tokens.shape[1]

    def with_positions(mask: Mask | None, positions: jax.Array) -> Mask | None:
        if mask is None and not causal:
            return None
        mask = _with_memory(mask or Mask(), memory_len)
        return dataclasses.replace(
            mask,
            causal=causal,
            window=(memory_len, 0) if same_length else None,
            queries=mask.queries._replace(positions=positions),
            keys=mask.keys._replace(positions=jnp.arange(-memory_len, length)),
        )

    content = with_positions(reading.mask, jnp.arange(length))
    if reading.targets is None:
        return (content,)
    return content, with_positions(reading.targets.mask, reading.targets.positions)


def streams(
    reading: Reading, masks: Sequence[Mask | None], shared: RelativeView, *, memory_len: int
) -> Sequence[RelativeView]:
    """The views of the content and, if any, of the predicted positions.

    Args:
      reading: the rows, without memory.
      masks: those of `masks`.
      shared: what both views have.
      memory_len: M.
    """
    length = reading.tokens.shape[1]
    asked = (None,) if reading.targets is None else (None, reading.targets.positions)
    views = []
    for mask, asking_BQ in zip(masks, asked, strict=True):
        types = None
        if (types_BQ := reading.types) is not None:
            types_BT = jnp.pad(types_BQ, ((0, 0), (memory_len, 0)))
            if asking_BQ is not None:
                types_BQ = jnp.take_along_axis(types_BQ, asking_BQ, axis=1)
            types = (types_BQ, types_BT)
        view = dataclasses.replace(shared, mask=mask, types=types, asking=asking_BQ)
        queries = length if asking_BQ is None else asking_BQ.shape[1]
        views.append(view.with_pairs(queries, memory_len + length))
    return views


def _with_memory(mask: Mask, memory_len: int) -> Mask:
    """The mask of a row, whose keys follow a memory that all queries see."""

    def before(x: jax.Array | None, value: int) -> jax.Array | None:
        """`x` [..., L], with the value at the positions of the memory."""
        if x is None:
            return None
        room = [*[(0, 0)] * (x.ndim - 1), (memory_len, 0)]
        return jnp.pad(x, room, constant_values=value)

    order = before(mask.keys.order, jnp.iinfo(jnp.int32).min)
    return dataclasses.replace(
        mask,
        present=before(mask.present, 1),
        keys=mask.keys._replace(order=order),
        pairs=before(mask.pairs, 1),
    )

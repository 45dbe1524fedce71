"""What a two-stream model reads, and what each position sees: orders, padding, segments, memory.

Suffixes: B batch, L length, P predicted positions, Q queries (L or P), M memory, T = M + L keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from t5x_like.layers.attention.relative_attention import Sight
from t5x_like.layers.attention.relative_tpu import pairs_of

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


class Targets(NamedTuple):
    """Positions to predict, int32 [B, P], and what they see, bool [B|1, P, L]; None: everything."""

    positions: jax.Array
    mask: jax.Array | None = None


class Reading(NamedTuple):
    """The input of a pass of the model.

    Attributes:
      tokens: int32 [B, L].
      types: int32 [B, L], segments, compared only for equality; None: one. Memory is in segment 0.
      mask: bool [B|1, L, L], what each position sees of the row; None: all.
      targets: None where nothing is predicted.
      backward: bool [B], rows of reversed text; None: none.
    """

    tokens: jax.Array
    types: jax.Array | None = None
    mask: jax.Array | None = None
    targets: Targets | None = None
    backward: jax.Array | None = None


def content_alone(batch: Batch) -> Reading:
    """Every position sees itself and the tokens that are not padding."""
    counts_BL = batch["encoder_attention_mask"] > 0
    itself_LL = jnp.eye(counts_BL.shape[1], dtype=bool)
    mask_BLL = counts_BL[:, None] | itself_LL
    return Reading(batch["encoder_input_tokens"], batch.get("encoder_token_type_ids"), mask_BLL)


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
    itself_LL = jnp.eye(counts_BL.shape[1], dtype=bool)
    return Reading(
        batch["encoder_input_tokens"],
        batch.get("encoder_token_type_ids"),
        (query_BL[:, :, None] > key_BL[:, None]) | itself_LL,
        Targets(positions_BP, query_BP[:, :, None] > key_BL[:, None]),
        batch["backward"] > 0,
    )


def sights(
    reading: Reading, *, memory_len: int, causal: bool, same_length: bool
) -> tuple[Sight, ...]:
    """What the content and, if any, the predicted positions see; all of them see the memory.

    Args:
      reading: the rows, without memory.
      memory_len: M.
      causal: whether keys after a query are hidden.
      same_length: whether keys more than M before a query are hidden, too.
    """
    length = reading.tokens.shape[1]
    types_BT = None
    if reading.types is not None:
        types_BT = jnp.pad(reading.types, ((0, 0), (memory_len, 0)))

    def sight(mask: jax.Array | None, positions_BQ: jax.Array | None) -> Sight:
        types_BQ, at_BQ = reading.types, positions_BQ
        if at_BQ is None:
            at_BQ = jnp.arange(length)[None]
        elif types_BQ is not None:
            types_BQ = jnp.take_along_axis(types_BQ, at_BQ, axis=1)
        if mask is not None:
            mask = jnp.pad(mask, ((0, 0), (0, 0), (memory_len, 0)), constant_values=True)[:, None]
        if causal:
            distance = at_BQ[:, None, :, None] - jnp.arange(-memory_len, length)
            before = distance >= 0
            if same_length:
                before &= distance <= memory_len
            mask = before if mask is None else mask & before
        differs = None
        if types_BQ is not None and types_BT is not None:
            differs = types_BQ[:, None, :, None] != types_BT[:, None, None]
        # One for all layers; where none reads it, it is not computed.
        return Sight(mask, differs, positions_BQ, pairs_of(mask, differs))

    content = sight(reading.mask, None)
    if reading.targets is None:
        return (content,)
    return content, sight(reading.targets.mask, reading.targets.positions)

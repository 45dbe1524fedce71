"""Virtual tokens in front of a row: ids above those of the vocabulary, whose vectors are learned.

Suffixes: B batch, L length.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from t5x_like.core.abilities import States

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

_VALUES = {"attention_mask": jnp.ones_like, "token_type_ids": jnp.zeros_like}
"""What virtual tokens have in the other arrays of a row."""


@dataclasses.dataclass(frozen=True)
class Prompt:
    """Virtual tokens.

    Attributes:
      tokens: how many.
      first_id: the id of the first one.
    """

    tokens: int
    first_id: int

    def before(self, batch: Batch) -> Batch:
        """The batch with virtual tokens in front of what an encoder, or a lone decoder, reads.

        Raises:
          ValueError: its rows are packed, or have positions of their own.
        """
        side = "encoder" if "encoder_input_tokens" in batch else "decoder"
        tokens_BL = batch[f"{side}_input_tokens"]
        ids_P = self.first_id + jnp.arange(self.tokens, dtype=tokens_BL.dtype)
        ids_BP = jnp.broadcast_to(ids_P, (tokens_BL.shape[0], self.tokens))
        longer = {f"{side}_input_tokens": jnp.concatenate([ids_BP, tokens_BL], axis=1)}
        for name, x_BL in batch.items():
            of_row = name.removeprefix(f"{side}_")
            if not name.startswith(side) or name in longer or x_BL.shape != tokens_BL.shape:
                continue
            if of_row in ("target_tokens", "loss_weights"):
                continue
            if of_row not in _VALUES:
                raise ValueError(f"a prompt is for rows of one text, and these have {name}")
            front_BP = _VALUES[of_row](ids_BP).astype(x_BL.dtype)
            longer[name] = jnp.concatenate([front_BP, x_BL], axis=1)
        return {**batch, **longer}

    def without(self, states: States) -> States:
        """The states of the tokens of the text alone."""
        first = self.tokens

        def cut(x: jax.Array | None, *axes: int) -> jax.Array | None:
            if x is None:
                return None
            return x[tuple(slice(first, None) if n in axes else slice(None) for n in range(x.ndim))]

        return states._replace(
            last=states.last[:, first:],
            states=cut(states.states, 2),
            attention=cut(states.attention, 3, 4),
        )


def room(prompt: Prompt | None, limit: int | None) -> int | None:
    """The most tokens of a text, where a row has at most `limit`; None for any number."""
    return limit if limit is None or prompt is None else limit - prompt.tokens


def before(prompt: Prompt | None, batch: Batch) -> Batch:
    """`Prompt.before`, where there is a prompt."""
    return batch if prompt is None else prompt.before(batch)


def without(prompt: Prompt | None, states: States) -> States:
    """`Prompt.without`, where there is a prompt."""
    return states if prompt is None else prompt.without(states)

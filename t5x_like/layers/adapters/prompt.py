"""Prompt tuning: vectors in front of the embedded text (Lester et al., 2021, section 2).

Suffixes: B batch, L length, P virtual tokens, E width of the embeddings, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.adapters import places
from t5x_like.layers.basics.depth import below
from t5x_like.layers.basics.modules import ZEROS, Embedding, param
from t5x_like.layers.families.encoder_decoder import EncoderDecoder
from t5x_like.layers.families.prompts import Prompt

TRAINED = ("prompt",)
"""The name of its parameter."""
_COMMON = 5000
"""The first ids of a vocabulary, of whose tokens some are taken (section 3.2)."""


class PromptedEmbedding(Embedding):
    """A table that keeps its name, and vectors for the ids after its last one.

    A vector is that of a token of the table, and what is learned, which is 0 at first.
    """

    def __init__(self, old: Embedding, *, like: Sequence[int], rngs: nnx.Rngs) -> None:
        self.table, self.like = old.table, tuple(like)
        shape = (len(like), old.table.shape[1])
        self.prompt = below(param(ZEROS, shape, axes=(None, "embed"), rngs=rngs, multiplied=False))

    def vectors(self) -> jax.Array:
        """Those of the virtual tokens, float32 [P, E]."""
        return self.table[...][np.array(self.like)] + self.prompt[...]

    def __call__(self, tokens_BL: jax.Array, *, dtype: DTypeLike) -> jax.Array:
        """[B, L, E] in `dtype`; the id V is the first virtual token."""
        size = self.table.shape[0]
        x_BLE = super().__call__(jnp.minimum(tokens_BL, size - 1), dtype=dtype)
        at_BL = jnp.clip(tokens_BL - size, 0, len(self.like) - 1)
        virtual_BLE = self.vectors().astype(dtype)[at_BL]
        return jnp.where((tokens_BL >= size)[..., None], virtual_BLE, x_BLE)


def table_of(model: Any) -> tuple[Sequence[Any], Embedding]:
    """The path and the module of the token table of a model.

    Raises:
      ValueError: it is neither an encoder-decoder nor a body with a head, or has several tables.
    """
    tables = [
        (path, node)
        for path, node in nnx.iter_graph(model)
        if isinstance(node, Embedding) and node.table.shape[-2] == model.config.vocab_size
    ]
    if len(tables) != 1 or not (isinstance(model, EncoderDecoder) or "body" in vars(model)):
        raise ValueError(
            f"a {type(model).__name__} has no prompt: take another method, such as prefix or lora"
        )
    return tables[0]


def adapt(
    model: Any, *, rngs: nnx.Rngs, virtual_tokens: int = 20, like: Sequence[int] | None = None
) -> Any:
    """The model with virtual tokens in front of each text that it reads.

    Args:
      model: one with a head, or an encoder-decoder; it is changed.
      rngs: the source of random numbers.
      virtual_tokens: how many.
      like: the ids of the tokens that they start as, repeated where they are fewer; None for some
        of the first 5,000 of the vocabulary, always the same.

    Raises:
      ValueError: there are no virtual tokens, or it is another model.
    """
    if virtual_tokens < 1:
        raise ValueError(f"a prompt has a virtual token at least, not {virtual_tokens}")
    path, table = table_of(model)
    size = table.table.shape[0]
    if like is None:
        common = min(_COMMON, size)
        draw = np.random.default_rng(0)
        like = [
            int(i) for i in draw.choice(common, virtual_tokens, replace=virtual_tokens > common)
        ]
    ids = [like[n % len(like)] for n in range(virtual_tokens)]
    places.put(model, path, PromptedEmbedding(table, like=ids, rngs=rngs))
    model.prompt = Prompt(virtual_tokens, size)
    return model

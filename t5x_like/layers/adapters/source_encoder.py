"""A small encoder before that of an encoder-decoder, for texts of a language that it does not know.

Lewis et al., 2020, section 3.4. Suffixes: B batch, L length, D d_model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics import embeddings
from t5x_like.layers.basics.dropout import subkeys
from t5x_like.layers.basics.embeddings import PositionedInput
from t5x_like.layers.basics.modules import Embedding
from t5x_like.layers.stacks import standard_parts
from t5x_like.layers.stacks.encoder import encoder_stack

if TYPE_CHECKING:
    from t5x_like.layers.stacks.transformer_config import Transformer

NAME = "source"
"""The attribute of the model that has it."""


class SourceEncoder(nnx.Module):
    """Token vectors of its own, positions and layers; its states stand for token vectors."""

    def __init__(self, config: Any, num_layers: int, *, padding: int, rngs: nnx.Rngs) -> None:
        self.tokens = Embedding(config.vocab_size, config.d_model, init=config.init, rngs=rngs)
        self.entry = PositionedInput(
            config.max_positions,
            config.d_model,
            init=config.init,
            norm=standard_parts.norm(config, rngs),
            dropouts=config.dropouts,
            rngs=rngs,
        )
        made_of = standard_parts.parts(config, config.placement)
        self.stack = encoder_stack(config, made_of, num_layers=num_layers, rngs=rngs)
        self.padding = padding

    def __call__(
        self, tokens_BL: jax.Array, *, dtype: DTypeLike, key: jax.Array | None = None
    ) -> jax.Array:
        """The states [B, L, D] of int32 tokens [B, L]."""
        first, stack = subkeys(key, 2)
        positions = embeddings.positions_in_row(tokens_BL)
        x_BLD = self.entry(self.tokens(tokens_BL, dtype=dtype), positions, first)
        view = View(mask=Mask(present=tokens_BL != self.padding))
        return self.stack.encode(x_BLD, views=view, key=stack).last


def adapt(model: Any, *, rngs: nnx.Rngs, source_layers: int = 2) -> Any:
    """The model with a new encoder before its own, in place of its token vectors there.

    Args:
      model: a BART, which is changed.
      rngs: the source of random numbers.
      source_layers: the layers of the new encoder.

    Raises:
      ValueError: it is another model, or there are no layers.
    """
    if NAME not in dir(type(model)):
        raise ValueError(
            f"a {type(model).__name__} has no place for a second encoder: this is for BART"
        )
    if source_layers < 1:
        raise ValueError(f"a second encoder has a layer at least, not {source_layers}")
    config: Transformer = model.config
    model.source = SourceEncoder(config, source_layers, padding=model.padding, rngs=rngs)
    return model

"""Predicts masked characters one after another, in any order (CANINE, section 3.3).

CANINE is Clark et al., 2022. Suffixes: B batch, K masked positions in their order, D d_model, V
buckets of characters.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.modules import Linear, Logits
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks import standard_parts
from t5x_like.layers.stacks.blocks import POST_NORM
from t5x_like.layers.stacks.encoder import encoder_stack


class PermutedCharacters(nnx.Module):
    """Scores buckets of the character at each masked position, from it and those before it.

    norm(activation(dense([state, character before]))) -> a causal layer -> a matrix. The paper
    gives these parts, and no code of them was published. That a position reads the character of the
    position before it in the order, with the embedding of its own place, is ours: it makes the
    order's first position read none, and no position its own character.
    """

    def __init__(self, config: standard_parts.Config, num_buckets: int, *, rngs: nnx.Rngs) -> None:
        """Makes the parts; `config` is that of the layer."""
        width = config.d_model
        self.dense = Linear(
            (2 * width, width),
            ("embed", None),
            init=config.init,
            dtype=config.dtype,
            rngs=rngs,
            bias=True,
        )
        self.norm = standard_parts.norm(config, rngs)
        made_of = standard_parts.parts(config, POST_NORM)
        self.stack = encoder_stack(config, made_of, num_layers=1, rngs=rngs)
        self.out = Logits(width, num_buckets, init=config.init, rngs=rngs, bias=True)
        self.activation = config.activation
        self.num_buckets = num_buckets
        above(self)

    def token_scores(
        self,
        x_BKD: jax.Array,
        gold_BKD: jax.Array,
        weights_BK: jax.Array,
        *,
        key: jax.Array | None = None,
    ) -> TokenScores:
        """The scores of buckets.

        Args:
          x_BKD: the states at masked positions.
          gold_BKD: the embeddings of the characters that are there.
          weights_BK: above 0 for positions that count, which come before the others.
          key: for dropout.
        """
        before_BKD = jnp.pad(gold_BKD[:, :-1], ((0, 0), (1, 0), (0, 0)))
        x_BKD = self.dense(jnp.concatenate([x_BKD, before_BKD], axis=-1))
        view = View(mask=Mask(present=weights_BK, causal=True))
        x_BKD = self.norm(self.activation(x_BKD))
        return self.out.token_scores(self.stack.encode(x_BKD, views=view, key=key).last)

    def buckets(self, characters: jax.Array) -> jax.Array:
        """The bucket of each code point, of the same shape."""
        return characters % self.num_buckets

    def products(self, weights_BK: jax.Array) -> jax.Array:
        """Multiply-adds at the masked positions of a batch, float32 []."""
        width = self.dense.kernel.shape[1]
        return accounting.encoder_products(
            self, (weights_BK > 0).astype(jnp.int32), num_layers=1, width=width, causal=True
        )

"""A stack whose first layer has no norm before its attention: what it reads is normed already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.basics.depth import at
from t5x_like.layers.stacks.blocks import EncoderLayer
from t5x_like.layers.stacks.encoder import EncoderStack
from t5x_like.layers.stacks.stack import Bodies, Body


class UnnormedFirst(EncoderStack):
    """N encoder layers with norms before their parts (ModernBERT, Warner et al., 2024).

    The norms before attention are stored as [N - 1, ...], those of the layers from the second on.
    All else is stored as [N, ...].
    """

    def __init__(
        self,
        make_layer: Callable[[nnx.Rngs], nnx.Module],
        num_layers: int,
        **how: Any,
    ) -> None:
        """Makes the layers; `how` is what `Stack` takes besides."""
        super().__init__(make_layer, num_layers, **how)
        layers: Any = self.layers
        later = jax.tree.map(lambda leaf: leaf[1:], layers.attention_norm)
        layers.attention_norm = at(later, 1, of=num_layers) if num_layers > 1 else None

    def __call__(self, bodies: Bodies, x: jax.Array, xs: Any = None) -> tuple[jax.Array, Any]:
        in_turn = [bodies] if callable(bodies) else bodies
        layers = jax.tree.map(lambda leaf: leaf, self.layers)  # a copy, whose norms are changed
        if layers.attention_norm is not None:
            # A norm for the first layer, which skips it.
            layers.attention_norm = jax.tree.map(
                lambda leaf: jnp.concatenate([leaf[:1], leaf]), layers.attention_norm
            )
        skips = jnp.arange(self.num_layers) == 0
        return self.run([*map(_skipping, in_turn)], x, layers, (skips, xs))


def _skipping(body: Body) -> Body:
    """A body whose layer may skip the norm before its attention."""

    def run(layer: EncoderLayer, x: jax.Array, skips_xs: tuple) -> tuple[jax.Array, Any]:
        skips, xs = skips_xs
        norm = layer.attention_norm

        def unless_skipped(x_BLD: jax.Array) -> jax.Array:
            return x_BLD if norm is None else jnp.where(skips, x_BLD, norm(x_BLD))

        layer.attention_norm = unless_skipped
        return body(layer, x, xs)

    return run

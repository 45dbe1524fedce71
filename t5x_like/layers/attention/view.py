"""A view: everything that a layer's attention looks through, besides its own parameters.

Suffixes: B batch, L queries, M keys, H heads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

import jax

from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.rotary import Rotary


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """A subclass adds what its own attention reads; layers share a view, or have one each.

    Attributes:
      mask: which keys a query sees; None: all.
      bias: float, broadcasts to [B, H, L, M], added to the logits; None: nothing. A layer that has
        a bias of its own adds that one.
      rotary: turns queries and keys of self-attention; None: nothing.
      heads: float [B, H], multiplies the values of each head: 0 switches it off; None: nothing.
    """

    mask: Mask | None = None
    bias: jax.Array | None = None
    rotary: Rotary | None = None
    heads: jax.Array | None = None

    def with_bias(self, bias: jax.Array) -> Self:
        return dataclasses.replace(self, bias=bias)

    def with_heads(self, heads_BH: jax.Array | None) -> Self:
        return self if heads_BH is None else dataclasses.replace(self, heads=heads_BH)


OPEN = View()
"""All queries see all keys, by content alone."""

Views = View | Sequence[View]
"""One for all layers, or several: layer i has number i modulo how many there are."""


def views_of(views: Views) -> Sequence[View]:
    """The views, one or several, as a sequence."""
    return (views,) if isinstance(views, View) else views

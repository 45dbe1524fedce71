"""LongT5 (Guo et al., 2022): a T5 1.1 whose encoder looks near, and at sums of blocks.

Suffixes: B batch, L length, H heads.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.layers.attention import masks
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.positions import RelativeBias
from t5x_like.layers.attention.variants.local import LocalAttention, LocalView, local_view
from t5x_like.layers.basics.depth import below
from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks.blocks import Parts
from t5x_like.models import t5

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(t5.Config):
    """Architecture and loss of a LongT5.

    Attributes:
      local_radius: how many tokens before and after a query its encoder sees (section 3.1.1).
      summed_block: how many tokens a transient global token sums up (section 3.1.2); None: there
        are no such tokens.
    """

    local_radius: int = 127
    summed_block: int | None = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relative_bias_per_layer:
            raise ValueError(
                "longt5.Config.relative_bias_per_layer must be False: all layers share the biases "
                "of a LongT5"
            )


class _LocalSides(t5.Sides):
    """What the encoder of a LongT5 has in other ways than that of a T5."""

    config: Config

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, rngs=rngs)
        summing = config.summed_block is not None
        self.encoder_summary_relative = _biases_of_blocks(config, rngs) if summing else None

    def encoder_parts(self, config: Any) -> Parts:
        norm = super().encoder_parts(config).norm
        attention = functools.partial(
            LocalAttention, summary_norm=None if config.summed_block is None else norm
        )
        return t5.parts(config, bidirectional=True, attention=attention)

    def encoder_view(self, mask: Mask, length: int) -> LocalView:
        assert self.encoder_relative is not None
        return local_view(
            mask,
            length,
            radius=self.config.local_radius,
            relative=self.encoder_relative,
            block=self.config.summed_block,
            relative_blocks=self.encoder_summary_relative,
        )

    def encoder_pairs(self, segments_BM: jax.Array) -> jax.Array:
        radius = self.config.local_radius
        near = masks.near_pairs(segments_BM, (radius, radius))
        tokens_B = (segments_BM > 0).sum(axis=1).astype(jnp.float32)
        return near + (tokens_B * self._summed(segments_BM)).sum()

    def flops(self, batch: Batch) -> jax.Array:
        attention = self.encoder.layers.attention
        size = accounting.matrix_size(attention.key, attention.value)
        encoder_BM, _ = self._segments(batch)
        summed = self._summed(encoder_BM).sum()
        return super().flops(batch) + accounting.step_flops(size * summed)

    def _summed(self, segments_BM: jax.Array) -> jax.Array:
        """How many blocks of each row are summed up, float32 [B]."""
        block = self.config.summed_block
        if block is None:
            return jnp.zeros(len(segments_BM))
        return (segments_BM[:, block - 1 :: block] > 0).sum(axis=1).astype(jnp.float32)


def _biases_of_blocks(config: Config, rngs: nnx.Rngs) -> RelativeBias:
    return below(t5.relative_bias(config, bidirectional=True)(rngs), stack="encoder")


class Encoder(_LocalSides, t5.Encoder):
    """The encoder alone."""


class LongT5(_LocalSides, t5.T5):
    """A `T5` whose encoder's time grows with the length of a row, or nearly so."""

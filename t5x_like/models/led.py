"""LED (Beltagy et al., 2020, section 7): a BART whose encoder is a Longformer.

Suffixes: B batch, M input length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import jax
import jax.numpy as jnp

from t5x_like.layers.attention import masks
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.variants.global_tokens import (
    GIVEN,
    GlobalAttention,
    first_tokens,
    sides_of_layers,
    views,
)
from t5x_like.layers.attention.view import Views
from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks.blocks import Parts
from t5x_like.models import bart

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch
    from t5x_like.layers.families.encoder_decoder import Side

GlobalTokens = Literal["given", "first"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(bart.Config):
    """Architecture and loss of a LED; the defaults are its base's.

    Where the batch does not say which tokens are global (`GIVEN`), `global_tokens` does: with
    `given` none, with `first` that of each row, as for summaries (section 7).
    """

    max_positions: int = 16384  # of the encoder
    max_decoder_positions: int = 1024
    window: int | Sequence[int] = 512  # positions on each side, of all layers or one for each
    global_tokens: GlobalTokens = "given"
    max_global: int = 128  # global tokens of a row; a row with more of them has NaN

    unused_positions: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        known = get_args(GlobalTokens)
        if self.global_tokens not in known:
            raise ValueError(
                f"led.Config.global_tokens is {' or '.join(known)}, got {self.global_tokens!r}"
            )
        self.windows  # noqa: B018  raises where they do not fit the layers

    @property
    def windows(self) -> tuple[int, ...]:
        """How many positions before and after a token each layer of the encoder sees."""
        return sides_of_layers(
            self.window, layers=self.num_encoder_layers, name="led.Config.window"
        )

    def positions_of(self, side: Side) -> int:
        return self.max_positions if side == "encoder" else self.max_decoder_positions


class Led(bart.Bart):
    """A `Bart` whose encoder's time grows with the length of a row.

    A batch may also hold int32 `encoder_global_mask`, [B, M], 1 for the tokens that see all and are
    seen by all. Packed rows have no global tokens.
    """

    config: Config

    @property
    def max_tokens(self) -> int | None:
        """The positions of the encoder."""
        return self.config.max_positions

    def encoder_parts(self, config: Any) -> Parts:
        return dataclasses.replace(
            super().encoder_parts(config),
            attention=lambda rngs: GlobalAttention(config, init=config.init, tied=False, rngs=rngs),
        )

    def encoder_traits(self, batch: Batch) -> Traits:
        traits = super().encoder_traits(batch)
        tokens_BM = batch["encoder_input_tokens"]
        present_BM = batch.get("encoder_attention_mask", tokens_BM != self.padding)
        if GIVEN in batch:
            return traits._replace(chosen=(batch[GIVEN] > 0) & (present_BM > 0))
        if self.config.global_tokens == "given":
            return traits
        return traits._replace(chosen=first_tokens(present_BM))

    def encoder_view(self, mask: Mask, length: int) -> Views:
        config = self.config
        mask = dataclasses.replace(
            mask, most_chosen=config.max_global, queries=mask.queries._replace(chosen=None)
        )
        return views(mask, config.windows)

    def encoder_pairs(self, segments_BM: jax.Array) -> jax.Array:
        pairs = [masks.near_pairs(segments_BM, (one, one)) for one in self.config.windows]
        return jnp.stack(pairs).mean()

    def flops(self, batch: Batch) -> jax.Array:
        """As of a `Bart`, without the projections of global tokens."""
        config = self.config
        size = 3.0 * config.num_encoder_layers * config.d_model**2
        inputs = accounting.count(self._segments(batch)[0])
        return super().flops(batch) - accounting.step_flops(size * inputs)


class Reader(bart.Reader):
    """A body for tasks, of which encoder and decoder read the same text."""

    kind: ClassVar = Led
    config: Config

    @property
    def max_tokens(self) -> int | None:
        """The positions of the decoder."""
        return self.config.max_decoder_positions

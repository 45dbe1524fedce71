"""Longformer (Beltagy et al., 2020): a RoBERTa for long texts, of windows and global tokens.

Suffixes: B batch, L length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import GivesStates, ReadsPackedRows
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
from t5x_like.layers.basics.modules import Init
from t5x_like.layers.families.encoder_pretraining import sentence_head
from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks.blocks import Parts
from t5x_like.models import bert

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

GlobalTokens = Literal["given", "first", "question", "choice"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(bert.Config):
    """Architecture of a Longformer; the defaults are those of its base (sections 3 and 5).

    Where the batch does not say which tokens are global (`GIVEN`), `global_tokens` does: with
    `given` none, `first` that of each row, `question` those before the first `separator`, `choice`
    those after the second one. Published models have them so for classes, answers and choices.
    """

    vocab_size: int = 50265
    max_positions: int = 4098  # 4,096 for tokens
    type_vocab_size: int = 1
    padding_position: int | None = 1
    sentence_head: bool = False
    norm_epsilon: float = 1e-5
    initializer: Callable[..., Init] = nnx.initializers.normal
    window: int | Sequence[int] = 256  # positions on each side, of all layers or one for each
    global_tokens: GlobalTokens = "given"
    max_global: int = 128  # global tokens of a row; a row with more of them has NaN
    separator: int = 2  # the id that ends a question
    tied_global: bool = False  # whether global tokens have the projections of the others

    may_be_zero: ClassVar[tuple[str, ...]] = (*bert.Config.may_be_zero, "separator")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.global_tokens not in get_args(GlobalTokens):
            raise ValueError(
                f"longformer.Config.global_tokens is one of {', '.join(get_args(GlobalTokens))}, "
                f"got {self.global_tokens!r}"
            )
        if self.relative_buckets:
            raise ValueError(
                "longformer.Config.relative_buckets must be 0: windows with global tokens have no "
                f"biases; got {self.relative_buckets}"
            )
        self.windows  # noqa: B018  raises where they do not fit the layers

    @property
    def windows(self) -> tuple[int, ...]:
        """How many positions before and after a token each layer sees."""
        return sides_of_layers(self.window, layers=self.num_layers, name="longformer.Config.window")

    @property
    def most_global(self) -> int:
        """How many tokens of a row are global at most."""
        return 1 if self.global_tokens == "first" else self.max_global


def parts(config: Config) -> Parts:
    """The parts of a layer."""
    return dataclasses.replace(
        bert.parts(config),
        attention=lambda rngs: GlobalAttention(
            config, init=config.init, tied=config.tied_global, rngs=rngs
        ),
    )


class Encoder(bert.Encoder):
    """A Longformer without heads; it reads the batches of a BERT.

    A batch may also hold int32 `encoder_global_mask`, [B, L], 1 for the tokens that see all and are
    seen by all. Where it holds none and the configuration chooses none, nothing is computed for
    them. Packed rows have no global tokens.
    """

    config: Config

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.embedding = bert.embedding(config, rngs)
        self.trunk = bert.Trunk(config, made_of=parts(config), rngs=rngs)
        self.config = config

    @property
    def abilities(self) -> tuple[type, ...]:  # type: ignore[override]
        """To give states, and to read packed rows where it does not look for global tokens."""
        packs = self.config.global_tokens == "given"
        return (GivesStates, *([ReadsPackedRows] if packs else []))

    def views(self, batch: Batch) -> Views:
        """What the layers look through: one view, or one for each layer."""
        traits = Traits(segments=batch.get("encoder_segment_ids"))
        chosen_BL = global_tokens(self.config, batch)
        given = GIVEN in batch
        mask = Mask(
            present=batch["encoder_attention_mask"],
            most_chosen=self.config.max_global if given else self.config.most_global,
            queries=traits,
            keys=traits._replace(chosen=chosen_BL),
        )
        return views(mask, self.config.windows)

    def products(self, counts_BL: jax.Array) -> jax.Array:
        """Multiply-adds of a forward pass without global tokens, float32 []."""
        config = self.config
        pairs = sum((masks.near_pairs(counts_BL, (one, one)) for one in config.windows), 0.0)
        of_tokens = accounting.matrix_size(self.trunk)
        if not config.tied_global:
            of_tokens -= 3.0 * config.num_layers * config.d_model**2
        return of_tokens * accounting.count(counts_BL) + 2.0 * config.d_model * pairs


def global_tokens(config: Config, batch: Batch) -> jax.Array | None:
    """Which tokens are global, bool [B, L]; None where nobody chooses any."""
    present_BL = batch["encoder_attention_mask"] > 0
    if GIVEN in batch:
        return (batch[GIVEN] > 0) & present_BL
    if config.global_tokens == "given":
        return None
    tokens_BL = batch["encoder_input_tokens"]
    if config.global_tokens == "first":
        return first_tokens(present_BL)
    ends_BL = (tokens_BL == config.separator).astype(jnp.int32)
    before_BL = jnp.cumsum(ends_BL, axis=1) - ends_BL
    if config.global_tokens == "choice":
        return (before_BL >= 2) & present_BL
    return (before_BL == 0) & (ends_BL == 0) & present_BL


class Longformer(bert.Bert):
    """A Longformer with the head that it is pretrained with, which predicts masked tokens."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(config, rngs=rngs)
        self.mlm = bert.masked_head(config, rngs)
        self.sentence = sentence_head(config, rngs) if config.sentence_head else None
        self.config = config

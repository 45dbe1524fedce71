"""ModernBERT (Warner et al., 2024), with the sizes of Ettin and mmBERT.

Suffixes: B batch, L length, D d_model.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, States, Want
from t5x_like.layers.attention import masks
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.rotary import rotary
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics import embeddings
from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.dropout import Dropouts, subkeys
from t5x_like.layers.basics.embeddings import NormedTokens
from t5x_like.layers.basics.modules import Init
from t5x_like.layers.families.body import PositionedEncoder
from t5x_like.layers.families.encoder_pretraining import EncoderPretraining
from t5x_like.layers.heads.masked_lm import MaskedLanguageHead
from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks import standard_parts
from t5x_like.layers.stacks.blocks import PRE_NORM
from t5x_like.layers.stacks.encoder import encoder_stack, with_last
from t5x_like.layers.stacks.unnormed_first import UnnormedFirst

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

Pooling = Literal["cls", "mean"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(standard_parts.Config):
    """Architecture of a ModernBERT; the defaults are those of its base (section 2 and table 4).

    Layers 0, `global_every`, 2 `global_every`, ... see the whole row, the others `window` positions
    on each side. Nothing but the scores of tokens has a bias.
    """

    vocab_size: int = 50368
    d_model: int = 768
    d_ff: int = 1152  # of each half of the gated layer
    num_heads: int = 12
    num_layers: int = 22
    max_positions: int = 8192  # tokens of a row; no table has them
    global_every: int = 3
    window: int = 64
    global_theta: float = 160_000.0  # of rotary positions; 10,000 while rows have 1,024 tokens
    local_theta: float = 10_000.0
    dropout_rate: float = 0.0  # of what attention adds to the residual stream; pretraining: 0.1
    attention_dropout_rate: float = 0.0
    mlp_dropout_rate: float = 0.0
    embedding_dropout_rate: float = 0.0
    pooling: Pooling = "mean"  # what heads of tasks read: the first token's state, or the mean

    causal: ClassVar[bool] = False  # whether tokens after a token are hidden

    def __post_init__(self) -> None:
        super().__post_init__()
        family = type(self).__module__.rpartition(".")[2]
        for name in ("global_theta", "local_theta"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"{family}.Config.{name} must be above 0, got {getattr(self, name)}"
                )
        if self.pooling not in get_args(Pooling):
            raise ValueError(f"{family}.Config.pooling is cls or mean, not {self.pooling!r}")

    @property
    def dropouts(self) -> Dropouts:
        """No dropout of what the feed-forward part adds."""
        return Dropouts(
            hidden=self.dropout_rate,
            attention=self.attention_dropout_rate,
            mlp=self.mlp_dropout_rate,
            after_mlp=False,
        )

    @property
    def init(self) -> Init:
        """Cut at two std."""
        return nnx.initializers.truncated_normal(self.init_std)

    @property
    def residual_std(self) -> float:
        """Of what is added to the residual stream, 2 L times, and of the heads' first layer.

        It is that of Megatron (the published code).
        """
        return float(self.init_std * (2 * self.num_layers) ** -0.5)

    @property
    def residual_init(self) -> Init:
        return nnx.initializers.truncated_normal(self.residual_std)

    @property
    def reach(self) -> tuple[int, int]:
        """How many positions before and after a token a window shows."""
        return self.window, 0 if self.causal else self.window

    @property
    def num_global_layers(self) -> int:
        """How many layers see the whole row."""
        return -(-self.num_layers // self.global_every)


class Encoder(PositionedEncoder, nnx.Module):
    """A ModernBERT, or a decoder of its layers, without heads.

    A batch holds int32 `encoder_input_tokens` and `encoder_attention_mask` (1 for tokens, 0 for
    padding), [B, L] each, and, where rows are packed, `encoder_segment_ids` (0 is padding) and
    `encoder_positions`. Float32 `encoder_head_mask` is that of a BERT.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        made_of = standard_parts.parts(
            config, PRE_NORM, residual_init=config.residual_init, gated=True
        )
        self.embedding = NormedTokens(
            config.vocab_size,
            config.d_model,
            init=config.init,
            norm=standard_parts.norm(config, rngs, bias=False),
            dropout_rate=config.embedding_dropout_rate,
            rngs=rngs,
        )
        self.stack = encoder_stack(
            config, made_of, num_layers=config.num_layers, rngs=rngs, kind=UnnormedFirst
        )
        self.norm = above(made_of.norm(rngs))
        self.config = config

    def products(self, counts_BL: jax.Array) -> jax.Array:
        """Multiply-adds of a forward pass, float32 []; in a window, of the pairs inside it."""
        config = self.config
        near = masks.near_pairs(counts_BL, config.reach)
        whole = masks.visible_pairs(counts_BL, counts_BL, causal=config.causal)
        pairs = config.num_global_layers * whole
        pairs += (config.num_layers - config.num_global_layers) * near
        matrices = accounting.matrix_size(self.stack) * accounting.count(counts_BL)
        return matrices + 2.0 * config.d_model * pairs

    def hidden(self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST) -> States:
        """States [B, L, D], the last of them normed; `key` None: without dropout.

        Raises:
          ValueError: the rows are longer than there are positions.
        """
        keys = subkeys(key, 2)
        states = self.stack.encode(
            self.embedding(batch["encoder_input_tokens"], keys[0]),
            views=views(self.config, batch),
            heads_BNH=batch.get("encoder_head_mask"),
            key=keys[1],
            want=want,
        )
        return with_last(states, self.norm(states.last))


def views(config: Config, batch: Batch) -> list[View]:
    """The views of the layers in turn.

    Raises:
      ValueError: the rows, which one text may fill, are longer than there are positions.
    """
    present_BL = batch["encoder_attention_mask"]
    positions_BL = batch.get("encoder_positions")
    embeddings.check_length(present_BL.shape[1], max_positions=config.max_positions)
    traits = Traits(segments=batch.get("encoder_segment_ids"), positions=positions_BL)
    mask = Mask(present=present_BL, causal=config.causal, queries=traits, keys=traits)
    places_BL = jnp.arange(present_BL.shape[1])[None] if positions_BL is None else positions_BL
    return views_through(config, mask, places_BL)


def views_through(config: Config, mask: Mask, places_BL: jax.Array) -> list[View]:
    """The whole row, as a mask shows it, and then a window of it `global_every` - 1 times."""
    near = dataclasses.replace(mask, window=config.reach)
    return [
        View(mask=mask, rotary=rotary(places_BL, d_kv=config.d_kv, theta=config.global_theta)),
        *[View(mask=near, rotary=rotary(places_BL, d_kv=config.d_kv, theta=config.local_theta))]
        * (config.global_every - 1),
    ]


def masked_head(config: Config, rngs: nnx.Rngs) -> MaskedLanguageHead:
    """The head that scores tokens."""
    return MaskedLanguageHead(
        (config.d_model, config.d_model),
        config.vocab_size,
        init=config.residual_init,
        activation=config.activation,
        epsilon=config.norm_epsilon,
        bias=False,
        dtype=config.dtype,
        rngs=rngs,
    )


class ModernBert(EncoderPretraining):
    """A ModernBERT with the head that it is pretrained with, which predicts masked tokens."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(config, rngs=rngs)
        self.mlm = masked_head(config, rngs)
        self.sentence = None
        self.config = config

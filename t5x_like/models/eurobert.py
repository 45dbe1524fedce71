"""EuroBERT (Boizard et al., 2025): an encoder of Llama's layers, and the base of NeoBERT's.

Suffixes: B batch, L length, D d_model.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, States, Want
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.rotary import rotary
from t5x_like.layers.attention.view import View
from t5x_like.layers.basics import activations, embeddings
from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.mlp import Activation
from t5x_like.layers.basics.modules import Embedding
from t5x_like.layers.families.body import PositionedEncoder
from t5x_like.layers.families.encoder_pretraining import EncoderPretraining
from t5x_like.layers.heads.masked_lm import UntiedHead
from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks import standard_parts
from t5x_like.layers.stacks.blocks import PRE_NORM
from t5x_like.layers.stacks.encoder import encoder_stack, with_last

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch

Pooling = Literal["bos", "mean", "late"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(standard_parts.Config):
    """Architecture of a EuroBERT; the defaults are those of its smallest model.

    Nothing has a bias. Queries are in `num_heads` heads, and keys and values in `num_kv_heads`.
    """

    vocab_size: int = 128256
    d_model: int = 768
    d_ff: int = 3072  # of each half of the gated layer
    num_heads: int = 12
    num_kv_heads: int | None = None  # of keys and values; None: as many as of queries
    num_layers: int = 12
    max_positions: int = 8192  # tokens of a row; no table has them
    theta: float = 250_000.0  # of rotary positions; 10,000 while rows have 2,048 tokens
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    activation: Activation = activations.silu
    pooling: Pooling = "late"  # what heads of tasks read: the first state, the mean, or all

    scores_have_bias: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        family = type(self).__module__.rpartition(".")[2]
        if not self.theta > 0:
            raise ValueError(f"{family}.Config.theta must be above 0, got {self.theta}")
        if self.pooling not in get_args(Pooling):
            raise ValueError(f"{family}.Config.pooling is bos, mean or late, not {self.pooling!r}")


class Encoder(PositionedEncoder, nnx.Module):
    """A EuroBERT or a NeoBERT without heads.

    Layers norm the root mean square of what their parts read, and the last one's output is normed;
    tokens are not. A batch is that of a `modernbert.Encoder`.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        made_of = standard_parts.parts(
            config, PRE_NORM, gated=True, rms=True, num_kv_heads=config.num_kv_heads
        )
        self.embedding = Embedding(config.vocab_size, config.d_model, init=config.init, rngs=rngs)
        self.stack = encoder_stack(config, made_of, num_layers=config.num_layers, rngs=rngs)
        self.norm = above(made_of.norm(rngs))
        self.config = config

    @property
    def tokens(self) -> Embedding:
        """The token table."""
        return self.embedding

    def products(self, counts_BL: jax.Array) -> jax.Array:
        """Multiply-adds of a forward pass, float32 []."""
        config = self.config
        return accounting.encoder_products(
            self.stack, counts_BL, num_layers=config.num_layers, width=config.d_model
        )

    def hidden(self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST) -> States:
        """States [B, L, D], the last of them normed; `key` None: without dropout.

        Raises:
          ValueError: the rows are longer than there are positions.
        """
        states = self.stack.encode(
            self.embedding(batch["encoder_input_tokens"], dtype=self.config.dtype),
            views=_view(self.config, batch),
            heads_BNH=batch.get("encoder_head_mask"),
            key=key,
            want=want,
        )
        return with_last(states, self.norm(states.last))


def _view(config: Config, batch: Batch) -> View:
    """The view of all layers: the whole row or, in a packed one, the whole text."""
    present_BL = batch["encoder_attention_mask"]
    positions_BL = batch.get("encoder_positions")
    embeddings.check_length(present_BL.shape[1], max_positions=config.max_positions)
    traits = Traits(segments=batch.get("encoder_segment_ids"), positions=positions_BL)
    places_BL = jnp.arange(present_BL.shape[1])[None] if positions_BL is None else positions_BL
    return View(
        mask=Mask(present=present_BL, queries=traits, keys=traits),
        rotary=rotary(places_BL, d_kv=config.d_kv, theta=config.theta),
    )


class EuroBert(EncoderPretraining):
    """A EuroBERT with the matrix that scores masked tokens, which is not the token table."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(config, rngs=rngs)
        self.mlm = UntiedHead(
            config.d_model,
            config.vocab_size,
            init=config.init,
            bias=config.scores_have_bias,
            rngs=rngs,
        )
        self.sentence = None
        self.config = config

"""T5 1.0 and 1.1, mT5, umT5, ByT5 (Raffel et al., 2020; Shazeer, 2020; Xue et al., 2021).

Suffixes: B batch, L length, D d_model, H heads, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, GivesStates, States, Want
from t5x_like.layers.attention.multi_head import Attention, Inits
from t5x_like.layers.attention.positions import RelativeBias
from t5x_like.layers.basics.depth import above, below
from t5x_like.layers.basics.dropout import Dropouts, dropout_hidden
from t5x_like.layers.basics.mlp import Mlp
from t5x_like.layers.basics.modules import Embedding, Logits, RMSNorm
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.families.encoder_decoder import EncoderDecoder, Side
from t5x_like.layers.stacks import transformer_config
from t5x_like.layers.stacks.blocks import PRE_NORM, Norm, Parts
from t5x_like.layers.stacks.decoder import decoder_stack
from t5x_like.layers.stacks.encoder import encoder_stack

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(transformer_config.Transformer):
    """Architecture and loss of a T5; the defaults are T5 small's (T5, section 2.1 and 3.7)."""

    vocab_size: int = 32128
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    d_kv: int = 64  # width of a head; num_heads * d_kv need not be d_model
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    mlp: Callable[..., Callable[..., jax.Array]] = Mlp  # 1.1 and later: layers.mlp.GatedMlp
    tied_logits: bool = True  # 1.1 and later: False
    relative_bias_per_layer: bool = False  # umT5: True, otherwise one table a stack
    relative_buckets: int = 32
    relative_max_distance: int = 128
    dropout_rate: float = 0.0  # everywhere
    norm_epsilon: float = 1e-6
    z_loss: float = 1e-4
    label_smoothing: float = 0.0

    @property
    def dropouts(self) -> Dropouts:
        rate = self.dropout_rate
        return Dropouts(hidden=rate, attention=rate, mlp=rate, shared=True)


def relative_bias(config: Config, *, bidirectional: bool) -> Callable[[nnx.Rngs], RelativeBias]:
    """What makes a table of biases of this shape."""
    return lambda rngs: RelativeBias(
        config.num_heads,
        bidirectional=bidirectional,
        num_buckets=config.relative_buckets,
        max_distance=config.relative_max_distance,
        rngs=rngs,
    )


def parts(
    config: Config, *, bidirectional: bool, attention: Callable[..., Attention] = Attention
) -> Parts:
    """The parts of a layer; the initial queries include the factor 1 / sqrt(d_kv)."""
    d_model, d_kv, dtype = config.d_model, config.d_kv, config.dtype
    normal = nnx.initializers.normal
    inits = Inits(
        query=normal((d_model * d_kv) ** -0.5),
        key=normal(d_model**-0.5),
        value=normal(d_model**-0.5),
        out=normal((config.num_heads * d_kv) ** -0.5),
    )
    relative = relative_bias(config, bidirectional=bidirectional)
    return Parts(
        norm=lambda rngs: RMSNorm(d_model, dtype=dtype, epsilon=config.norm_epsilon, rngs=rngs),
        attention=lambda rngs: attention(
            d_model,
            config.num_heads,
            d_kv=d_kv,
            inits=inits,
            dtype=dtype,
            kernel=config.kernel,
            rngs=rngs,
        ),
        mlp=lambda rngs: config.mlp(d_model, config.d_ff, dtype=dtype, rngs=rngs),
        dropouts=config.dropouts,
        placement=PRE_NORM,
        relative=relative if config.relative_bias_per_layer else None,
    )


def shared_relative(
    config: Config, *, bidirectional: bool, stack: str, rngs: nnx.Rngs
) -> RelativeBias | None:
    """The bias table of a whole stack of this name; None where every layer has its own."""
    if config.relative_bias_per_layer:
        return None
    return below(relative_bias(config, bidirectional=bidirectional)(rngs), stack=stack)


def own_output(config: Config, rngs: nnx.Rngs) -> Logits | None:
    """The matrix of the logits; None where they are tied."""
    if config.tied_logits:
        return None
    init = nnx.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
    return Logits(config.d_model, config.vocab_size, init=init, rngs=rngs)


def token_scores(x_BLD: jax.Array, embedding: Embedding, output: Logits | None) -> TokenScores:
    """The scores of last states, from the token table where `output` is None."""
    if output is not None:
        return output.token_scores(x_BLD)
    # The table has unit variance: scaled here, where it is cheaper than at the logits.
    return embedding.token_scores(x_BLD.astype(jnp.float32) * x_BLD.shape[-1] ** -0.5)


class Sides(EncoderDecoder):
    """The embedding and the encoder, and what both sides of a T5 share."""

    decoder_norm: Norm  # of a whole T5 alone, as is
    decoder_relative: RelativeBias | None

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        made_of = self.encoder_parts(config)
        normal = nnx.initializers.normal(1.0)
        self.embedding = Embedding(config.vocab_size, config.d_model, init=normal, rngs=rngs)
        self.encoder = encoder_stack(
            config, made_of, num_layers=config.num_encoder_layers, rngs=rngs
        )
        self.encoder_norm = above(made_of.norm(rngs))
        self.encoder_relative = shared_relative(
            config, bidirectional=True, stack="encoder", rngs=rngs
        )
        self.config = config
        self.padding = 0

    def encoder_parts(self, config: Any) -> Parts:
        """The parts of the encoder's layers."""
        return parts(config, bidirectional=True)

    def embedded(
        self,
        tokens_BL: jax.Array,
        key: jax.Array | None = None,
        *,
        side: Side,
        positions_BL: jax.Array | None = None,
    ) -> jax.Array:
        x_BLD = self.embedding(tokens_BL, dtype=self.config.dtype)
        return dropout_hidden(x_BLD, key, dropouts=self.config.dropouts)

    def bias(
        self, length: int, *, side: Side, position: jax.Array | None = None
    ) -> jax.Array | None:
        relative = self.encoder_relative if side == "encoder" else self.decoder_relative
        if relative is None:
            return None
        return relative(length, length) if position is None else relative.row(position, length)

    def normed(self, x_BLD: jax.Array, key: jax.Array | None = None, *, side: Side) -> jax.Array:
        norm = self.encoder_norm if side == "encoder" else self.decoder_norm
        return dropout_hidden(norm(x_BLD), key, dropouts=self.config.dropouts)


class Encoder(Sides):
    """The encoder alone: a body for tasks that read and do not write."""

    abilities = (GivesStates,)

    def hidden(
        self,
        batch: Batch,
        key: jax.Array | None = None,
        *,
        want: Want = LAST,
    ) -> States:
        """The encoder's states of a batch."""
        return self.encode(
            batch["encoder_input_tokens"],
            key,
            mask_BM=batch.get("encoder_attention_mask"),
            traits=self.encoder_traits(batch),
            heads_BNH=batch.get("encoder_head_mask"),
            want=want,
        )


class T5(Sides):
    """An `EncoderDecoder` with relative position biases, pre-norm and no bias vectors."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, rngs=rngs)
        made_of = parts(config, bidirectional=False)
        self.decoder = decoder_stack(
            config, made_of, num_layers=config.num_decoder_layers, rngs=rngs
        )
        self.decoder_norm = above(made_of.norm(rngs))
        self.decoder_relative = shared_relative(
            config, bidirectional=False, stack="decoder", rngs=rngs
        )
        self.output = own_output(config, rngs)

    def token_scores(self, x_BLD: jax.Array) -> TokenScores:
        return token_scores(x_BLD, self.embedding, self.output)


class Reader(T5):
    """A T5 for tasks: its decoder reads the same text, after the padding that begins answers.

    A batch holds int32 `encoder_input_tokens` and, optionally, `encoder_attention_mask` (1 for
    tokens, 0 for padding), [B, L] each.
    """

    def hidden(self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST) -> States:
        """The decoder's states [B, L, D]; `key` None: without dropout."""
        tokens_BL = batch["encoder_input_tokens"]
        both = {
            **batch,
            "decoder_input_tokens": jnp.pad(tokens_BL, ((0, 0), (1, 0)))[:, :-1],
            "decoder_target_tokens": tokens_BL,
        }
        return super().hidden(both, key, want=want)

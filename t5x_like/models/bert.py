"""BERT, and RoBERTa with other settings (Devlin et al., 2019; Liu et al., 2019).

Suffixes: B batch, L length, D d_model, E width of the embeddings, C classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, States, Want
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.positions import RelativeBias
from t5x_like.layers.attention.view import View, Views
from t5x_like.layers.basics import embeddings
from t5x_like.layers.basics.depth import below
from t5x_like.layers.basics.dropout import subkeys
from t5x_like.layers.basics.embeddings import InputEmbedding
from t5x_like.layers.basics.modules import Init, Linear
from t5x_like.layers.families.body import PositionedEncoder
from t5x_like.layers.families.encoder_pretraining import EncoderPretraining, sentence_head
from t5x_like.layers.heads.masked_lm import MaskedLanguageHead
from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks import standard_parts
from t5x_like.layers.stacks.blocks import POST_NORM, Parts
from t5x_like.layers.stacks.encoder import encoder_stack

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(standard_parts.Config):
    """Architecture of a BERT; the defaults are BERT base's, uncased (BERT, section 3)."""

    vocab_size: int = 30522
    d_model: int = 768
    d_ff: int = 3072
    num_heads: int = 12
    num_layers: int = 12
    d_embedding: int | None = None  # width of the embeddings where they are narrower (ELECTRA)
    max_positions: int = 512
    type_vocab_size: int = 2  # 0: no token types
    relative_buckets: int = 0  # of T5's biases, added to the positions (COCO-LM, section 4)
    relative_scale: float = 1.0  # scales the biases: Adam's steps are small for a logit
    padding_position: int | None = None  # RoBERTa: 1; the first token's is the next
    # `activation` is exact, as in the weights published at Hugging Face; the original code has the
    # tanh form of gelu.
    sentence_head: bool = True  # with a pooler and a classifier of pairs of sentences
    norm_epsilon: float = 1e-12
    # Its std is `init_std`, cut at two std; RoBERTa: nnx.initializers.normal, which is not cut.
    initializer: Callable[..., Init] = nnx.initializers.truncated_normal

    may_be_zero: ClassVar[tuple[str, ...]] = (
        "scan_unroll",
        *("type_vocab_size", "relative_buckets", "padding_position"),
    )

    @property
    def width(self) -> int:
        """The width of the embeddings."""
        return self.d_model if self.d_embedding is None else self.d_embedding

    @property
    def first_position(self) -> int:
        """The first token's row in the position table."""
        return 0 if self.padding_position is None else self.padding_position + 1

    @property
    def room(self) -> int:
        """How many tokens a row may have."""
        return self.max_positions - self.first_position

    @property
    def init(self) -> Init:
        return self.initializer(self.init_std)


def embedding(config: Config, rngs: nnx.Rngs) -> InputEmbedding:
    """Token, position and type vectors, normed."""
    return InputEmbedding(
        config.vocab_size,
        config.width,
        max_positions=config.max_positions,
        type_vocab_size=config.type_vocab_size,
        init=config.init,
        norm=standard_parts.norm(config, rngs, width=config.width),
        dropouts=config.dropouts,
        rngs=rngs,
    )


def _projection(config: Config, rngs: nnx.Rngs) -> Linear:
    return below(
        Linear(
            (config.width, config.d_model),
            (None, "embed"),
            # ELECTRA's code leaves it to TensorFlow's default.
            init=nnx.initializers.glorot_uniform(),
            bias=True,
            dtype=config.dtype,
            rngs=rngs,
        )
    )


def parts(config: Config) -> Parts:
    """The parts of a layer; each layer has its own table of relative biases."""
    made_of = standard_parts.parts(config, POST_NORM)
    if not config.relative_buckets:
        return made_of
    return dataclasses.replace(
        made_of,
        relative=lambda rngs: RelativeBias(
            config.num_heads,
            bidirectional=True,
            num_buckets=config.relative_buckets,
            scale=config.relative_scale,
            rngs=rngs,
        ),
    )


class Trunk(nnx.Module):
    """Turns embeddings into states: a projection where they are narrower, then the layers.

    `made_of` are the parts of a layer; None: those of a BERT.
    """

    def __init__(self, config: Config, *, made_of: Parts | None = None, rngs: nnx.Rngs) -> None:
        made_of = parts(config) if made_of is None else made_of
        self.project = None if config.width == config.d_model else _projection(config, rngs)
        self.stack = encoder_stack(config, made_of, num_layers=config.num_layers, rngs=rngs)

    def __call__(
        self,
        x_BLE: jax.Array,
        views: Views,
        key: jax.Array | None = None,
        *,
        heads_BNH: jax.Array | None = None,
        want: Want = LAST,
    ) -> States:
        """The states; `views` and `heads_BNH` are as in `EncoderStack.encode`."""
        return self.stack.encode(
            x_BLE if self.project is None else self.project(x_BLE),
            views=views,
            heads_BNH=heads_BNH,
            key=key,
            want=want,
        )


class Encoder(PositionedEncoder, nnx.Module):
    """A BERT without heads.

    A batch holds int32 `encoder_input_tokens`, `encoder_attention_mask` (1 for tokens, 0 for
    padding) and, where there are types, `encoder_token_type_ids`, [B, L] each; where rows are
    packed, also `encoder_segment_ids` (0 is padding) and `encoder_positions`. Float32
    `encoder_head_mask`, [B, N, H], multiplies the values of heads: 0 switches one off.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.embedding = embedding(config, rngs)
        self.trunk = Trunk(config, rngs=rngs)
        self.config = config

    @property
    def max_tokens(self) -> int | None:
        """The number of its positions."""
        return self.config.room

    def products(self, counts_BL: jax.Array) -> jax.Array:
        """Multiply-adds of a forward pass, float32 []."""
        return accounting.encoder_products(
            self.trunk, counts_BL, num_layers=self.config.num_layers, width=self.config.d_model
        )

    def views(self, batch: Batch) -> Views:
        """What the layers look through: all tokens of a text see each other."""
        traits = Traits(segments=batch.get("encoder_segment_ids"))
        return View(mask=Mask(present=batch["encoder_attention_mask"], queries=traits, keys=traits))

    def hidden(
        self,
        batch: Batch,
        key: jax.Array | None = None,
        *,
        want: Want = LAST,
    ) -> States:
        """States [B, L, D]; `key` None: without dropout."""
        keys = subkeys(key, 2)
        return self.trunk(
            embed(self.embedding, batch, config=self.config, key=keys[0]),
            self.views(batch),
            keys[1],
            heads_BNH=batch.get("encoder_head_mask"),
            want=want,
        )


def embed(
    embedding: InputEmbedding, batch: Batch, *, config: Config, key: jax.Array | None
) -> jax.Array:
    """The input of the layers, or of a projection before them, [B, L, E].

    Raises:
      ValueError: the rows are longer than there are positions.
    """
    tokens_BL = batch["encoder_input_tokens"]
    positions_BL = positions(tokens_BL, batch.get("encoder_positions"), config=config)
    types_BL = batch.get("encoder_token_type_ids") if config.type_vocab_size > 1 else None
    return embedding(tokens_BL, positions_BL, types_BL, dtype=config.dtype, key=key)


def positions(
    tokens_BL: jax.Array, in_texts_BL: jax.Array | None = None, *, config: Config
) -> jax.Array:
    """Rows of the position table, int32 [B|1, L].

    Where several texts share a row, `in_texts_BL` are their positions from 0.

    Raises:
      ValueError: the rows, which one text may fill, are longer than there are positions.
    """
    pad_id = config.padding_position
    embeddings.check_length(tokens_BL.shape[1], max_positions=config.room)
    if in_texts_BL is not None:
        return in_texts_BL if pad_id is None else _after_padding(tokens_BL, in_texts_BL, pad_id)
    if pad_id is None:
        return embeddings.positions_in_row(tokens_BL)
    return embeddings.positions_of_tokens(tokens_BL != pad_id, pad_id=pad_id)


def _after_padding(tokens_BL: jax.Array, in_texts_BL: jax.Array, pad_id: int) -> jax.Array:
    """pad_id + 1, + 2, ... for the tokens of each text, pad_id for padding (fairseq)."""
    return jnp.where(tokens_BL != pad_id, in_texts_BL + 1, 0) + pad_id


def masked_head(config: Config, rngs: nnx.Rngs) -> MaskedLanguageHead:
    """The head of the masked language model."""
    return MaskedLanguageHead(
        (config.d_model, config.width),
        config.vocab_size,
        init=config.init,
        activation=config.activation,
        epsilon=config.norm_epsilon,
        dtype=config.dtype,
        rngs=rngs,
    )


class Bert(EncoderPretraining):
    """BERT with the heads it is pretrained with: masked language model, next sentence."""

    @property
    def padding(self) -> int | None:
        """The id that positions skip, which must be padding's; None: they skip none."""
        return self.config.padding_position

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(config, rngs=rngs)
        self.mlm = masked_head(config, rngs)
        self.sentence = sentence_head(config, rngs) if config.sentence_head else None
        self.config = config

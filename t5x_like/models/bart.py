"""BART and mBART (Lewis et al., 2020; Liu et al., 2020).

Suffixes: B batch, L length, D d_model, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import LAST, States, Want
from t5x_like.layers.basics import embeddings
from t5x_like.layers.basics.depth import above, below
from t5x_like.layers.basics.dropout import Dropouts, subkeys
from t5x_like.layers.basics.embeddings import PositionedInput
from t5x_like.layers.basics.modules import ZEROS, Embedding, Init, param
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.families.body import EncoderBody
from t5x_like.layers.families.encoder_decoder import HEAD_MASKS, EncoderDecoder, Side
from t5x_like.layers.heads import label_heads
from t5x_like.layers.stacks import standard_parts
from t5x_like.layers.stacks.blocks import POST_NORM, PRE_NORM, Parts, Placement
from t5x_like.layers.stacks.decoder import decoder_stack
from t5x_like.layers.stacks.encoder import encoder_stack

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch
    from t5x_like.layers.adapters.source_encoder import SourceEncoder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(standard_parts.Config):
    """Architecture and loss of a BART; the defaults are BART base's (BART, section 2.1)."""

    vocab_size: int = 50265
    d_model: int = 768
    d_ff: int = 3072
    num_heads: int = 12
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    max_positions: int = 1024  # tokens of a row or, in packed rows, of an example
    pad_id: int = 1  # vocabularies trained here pad with 0
    pre_norm: bool = False  # mBART: True, and a norm after each stack
    scale_embedding: bool = False  # mBART: True, token vectors times sqrt(d_model)
    logits_bias: bool = False  # added to the logits and not trained; published files hold zeros
    activation_dropout_rate: float = 0.0  # inside the feed-forward part
    z_loss: float = 0.0
    label_smoothing: float = 0.0

    may_be_zero: ClassVar[tuple[str, ...]] = ("scan_unroll", "pad_id")
    unused_positions: ClassVar[int] = (
        2  # rows of a position table before the first token's (fairseq)
    )

    def positions_of(self, side: Side) -> int:
        """The positions of a side's rows."""
        return self.max_positions

    @property
    def placement(self) -> Placement:
        return PRE_NORM if self.pre_norm else POST_NORM

    @property
    def dropouts(self) -> Dropouts:
        return dataclasses.replace(super().dropouts, mlp=self.activation_dropout_rate)


def token_table(config: Config, rngs: nnx.Rngs) -> Embedding:
    """The embedding of a side's input, which also gives the logits."""
    init = _zero_at(config.pad_id, config.init)
    return Embedding(config.vocab_size, config.d_model, init=init, rngs=rngs)


def _zero_at(row: int, init: Init) -> Init:
    """Starts padding's vector at zero; it stays there where padding is never predicted."""
    return lambda *args: init(*args).at[row].set(0.0)


def positioned_input(config: Config, rngs: nnx.Rngs, *, side: Side) -> PositionedInput:
    """Adds positions to a side's token vectors, and norms them."""
    return PositionedInput(
        config.unused_positions + config.positions_of(side),
        config.d_model,
        init=config.init,
        norm=standard_parts.norm(config, rngs),
        dropouts=config.dropouts,
        rngs=rngs,
    )


def embed(
    tokens_BL: jax.Array,
    key: jax.Array | None,
    *,
    table: Callable[..., jax.Array],
    entry: PositionedInput,
    config: Config,
    side: Side,
    positions_BL: jax.Array | None,
) -> jax.Array:
    """The input of a side's first layer, [B, L, D]; arguments as in `EncoderDecoder.embedded`.

    Raises:
      ValueError: the rows are longer than there are positions.
    """
    if positions_BL is None:
        embeddings.check_length(tokens_BL.shape[1], max_positions=config.positions_of(side))
        positions_BL = embeddings.positions_in_row(tokens_BL)
    x_BLD = table(tokens_BL, dtype=config.dtype)
    if config.scale_embedding and isinstance(table, Embedding):
        x_BLD *= config.d_model**0.5
    return entry(x_BLD, config.unused_positions + positions_BL, key)


def _bias(config: Config, rngs: nnx.Rngs) -> nnx.Param:
    return above(param(ZEROS, (config.vocab_size,), axes=("vocab",), rngs=rngs))


class Bart(EncoderDecoder):
    """An `EncoderDecoder` with learned positions, norms of the embeddings and bias vectors.

    With a `source`, the encoder reads its states in place of token vectors
    (`layers.adapters.source_encoder`).
    """

    source: SourceEncoder | None = None

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        made_of = standard_parts.parts(config, config.placement)
        self.embedding = token_table(config, rngs)
        self.encoder_entry = below(positioned_input(config, rngs, side="encoder"), stack="encoder")
        self.decoder_entry = below(positioned_input(config, rngs, side="decoder"), stack="decoder")
        self.encoder = encoder_stack(
            config,
            self.encoder_parts(config),
            num_layers=config.num_encoder_layers,
            rngs=rngs,
        )
        self.decoder = decoder_stack(
            config, made_of, num_layers=config.num_decoder_layers, rngs=rngs
        )
        self.encoder_norm = above(standard_parts.norm(config, rngs)) if config.pre_norm else None
        self.decoder_norm = above(standard_parts.norm(config, rngs)) if config.pre_norm else None
        self.logits_bias = _bias(config, rngs) if config.logits_bias else None
        self.padding = config.pad_id
        self.max_positions = config.positions_of("decoder")
        self.config = config

    def encoder_parts(self, config: Any) -> Parts:
        """The parts of the encoder's layers."""
        return standard_parts.parts(config, config.placement)

    def embedded(
        self,
        tokens_BL: jax.Array,
        key: jax.Array | None = None,
        *,
        side: Side,
        positions_BL: jax.Array | None = None,
    ) -> jax.Array:
        table: Callable[..., jax.Array] = self.embedding
        if side == "encoder" and self.source is not None:
            source_key, key = subkeys(key, 2)
            table = functools.partial(self.source, key=source_key)
        return embed(
            tokens_BL,
            key,
            table=table,
            entry=self.encoder_entry if side == "encoder" else self.decoder_entry,
            config=self.config,
            side=side,
            positions_BL=positions_BL,
        )

    def normed(self, x_BLD: jax.Array, key: jax.Array | None = None, *, side: Side) -> jax.Array:
        norm = self.encoder_norm if side == "encoder" else self.decoder_norm
        return x_BLD if norm is None else norm(x_BLD)

    def token_scores(self, x_BLD: jax.Array) -> TokenScores:
        bias = self.logits_bias
        bias_V = None if bias is None else jax.lax.stop_gradient(bias[...])
        return self.embedding.token_scores(x_BLD, bias_V)


class Reader(EncoderBody, nnx.Module):
    """A body for tasks: encoder and decoder read the same text (BART, section 3.1).

    A batch holds int32 `encoder_input_tokens` and, optionally, `encoder_attention_mask` (1 for
    tokens, 0 for padding), [B, L] each. The decoder reads the text's last token first: </s>, or
    the language in mBART.
    """

    kind: ClassVar[type[Bart]] = Bart

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.model = self.kind(config, rngs=rngs)
        self.padding = config.pad_id
        self.config = config

    @property
    def max_tokens(self) -> int | None:
        """The number of its positions."""
        return self.config.max_positions

    def hidden(
        self,
        batch: Batch,
        key: jax.Array | None = None,
        *,
        want: Want = LAST,
    ) -> States:
        """The decoder's states [B, L, D]; `key` None: without dropout."""
        tokens_BL, padding = batch["encoder_input_tokens"], self.config.pad_id
        counts_BL = batch.get("encoder_attention_mask", tokens_BL != padding)
        last_B1 = label_heads.last_that_counts(tokens_BL[..., None], tokens_BL, counts_BL)
        both = {
            **{name: batch[name] for name in HEAD_MASKS if name in batch},
            "encoder_input_tokens": tokens_BL,
            "encoder_attention_mask": counts_BL,
            "decoder_input_tokens": jnp.concatenate([last_B1, tokens_BL[:, :-1]], axis=1),
            "decoder_target_tokens": jnp.where(counts_BL > 0, tokens_BL, padding),
        }
        return self.model.hidden(both, key, want=want)

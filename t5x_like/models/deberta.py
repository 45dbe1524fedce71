"""DeBERTa (He et al., 2021) and DeBERTa v2: masked tokens by disentangled attention.

Suffixes: B batch, L length, K masked positions, Q positions that ask, P absolute positions,
R rows of the table of distances, D d_model.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from t5x_like.core.abilities import LAST, States, Want
from t5x_like.layers.attention import masks
from t5x_like.layers.attention.masks import Mask, Traits
from t5x_like.layers.attention.variants.disentangled import (
    DisentangledAttention,
    DisentangledView,
    EachDistance,
    LogBuckets,
    Rows,
)
from t5x_like.layers.basics import embeddings
from t5x_like.layers.basics.convolution import Convolution
from t5x_like.layers.basics.depth import above, below
from t5x_like.layers.basics.dropout import dropout_hidden, subkeys
from t5x_like.layers.basics.embeddings import NormedTokens
from t5x_like.layers.basics.modules import param
from t5x_like.layers.families.body import PositionedEncoder
from t5x_like.layers.families.encoder_pretraining import EncoderPretraining, texts
from t5x_like.layers.heads.masked_lm import MaskedLanguageHead, at_positions
from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks import standard_parts
from t5x_like.layers.stacks.blocks import POST_NORM, Parts
from t5x_like.layers.stacks.encoder import encoder_stack, with_last
from t5x_like.layers.stacks.stack import gathered_layers

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics
    from t5x_like.layers.losses.accounting import Term


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(standard_parts.Config):
    """Architecture of a DeBERTa; the defaults are those of v3's base, without its discriminator.

    A `buckets` of 0 makes a DeBERTa of 2021: a row of the table for each of `max_positions`
    distances on both sides, which has no norm, and matrices of its own; keys have no bias. Or else
    there are `buckets` logarithmic ones a side, whose vectors are normed and share the matrices of
    contents (v2).
    """

    vocab_size: int = 128100
    d_model: int = 768
    d_ff: int = 3072
    num_heads: int = 12
    num_layers: int = 12
    max_positions: int = 512  # absolute positions, and the largest distance that is told apart
    buckets: int = 256
    convolution: int = 0  # width of a convolution beside the first layer; v2's xlarge: 3
    mask_decoder: bool = True  # whether masked tokens have the enhanced decoder (section 3.2)
    norm_epsilon: float = 1e-7

    may_be_zero: ClassVar = ("scan_unroll", "buckets", "convolution")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.convolution and not self.convolution % 2:
            raise ValueError(
                f"deberta.Config.convolution must be odd, or 0 for none, got {self.convolution}"
            )
        if self.buckets and not 4 <= self.buckets < 2 * (self.max_positions - 1):
            raise ValueError(
                "deberta.Config.buckets must be 0, or from 4 to below 2 * (max_positions - 1) = "
                f"{2 * (self.max_positions - 1)}: half of them are for single distances; got "
                f"{self.buckets}"
            )

    @property
    def rows(self) -> Rows:
        """The row of the table for each distance."""
        if self.buckets:
            return LogBuckets(self.buckets, self.max_positions)
        return EachDistance(self.max_positions)

    @property
    def num_rows(self) -> int:
        """How many rows the table of distances has."""
        return 2 * (self.buckets or self.max_positions)


def parts(config: Config) -> Parts:
    """The parts of a layer."""
    return dataclasses.replace(
        standard_parts.parts(config, POST_NORM),
        attention=lambda rngs: DisentangledAttention(
            config.d_model,
            config.num_heads,
            rows=config.rows,
            shared=config.buckets > 0,
            init=config.init,
            kernel=config.kernel,
            dtype=config.dtype,
            rngs=rngs,
        ),
    )


class Beside(nnx.Module):
    """norm(x + activation(dropout(convolution(embeddings)))); x is of the first layer (v2)."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.convolution = Convolution(
            config.d_model,
            width=config.convolution,
            init=config.init,
            dtype=config.dtype,
            rngs=rngs,
        )
        self.norm = standard_parts.norm(config, rngs)
        self.activation = config.activation
        self.dropouts = config.dropouts
        below(self)

    def __call__(
        self,
        x_BLD: jax.Array,
        embedded_BLD: jax.Array,
        texts_BL: jax.Array,
        key: jax.Array | None,
    ) -> jax.Array:
        """[B, L, D]; `texts_BL` are numbers of texts, 0 at padding."""
        y_BLD = self.convolution(embedded_BLD, texts_BL)
        y_BLD = self.activation(dropout_hidden(y_BLD, key, dropouts=self.dropouts))
        return self.norm(x_BLD + y_BLD)


class Encoder(PositionedEncoder, nnx.Module):
    """A DeBERTa without heads.

    A batch holds int32 `encoder_input_tokens` and `encoder_attention_mask` (1 for tokens, 0 for
    padding), [B, L] each, and, where rows are packed, `encoder_segment_ids` (0 is padding) and
    `encoder_positions`. Float32 `encoder_head_mask` is that of a BERT. Nothing in it says where in
    a text a token is: only distances.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.embedding = NormedTokens(
            config.vocab_size,
            config.d_model,
            init=config.init,
            norm=standard_parts.norm(config, rngs),
            dropout_rate=config.dropout_rate,
            rngs=rngs,
        )
        shape, axes = (config.num_rows, config.d_model), ("positions", "embed")
        self.distances = below(param(config.init, shape, axes=axes, multiplied=False, rngs=rngs))
        normed = config.buckets > 0
        self.distance_norm = below(standard_parts.norm(config, rngs)) if normed else None
        self.stack = encoder_stack(config, parts(config), num_layers=config.num_layers, rngs=rngs)
        self.beside = Beside(config, rngs=rngs) if config.convolution else None
        self.config = config

    def products(self, counts_BL: jax.Array, *, layers: int | None = None) -> jax.Array:
        """Multiply-adds of a forward pass through so many layers, None for all: float32 []."""
        layers = self.config.num_layers if layers is None else layers
        pairs = masks.visible_pairs(counts_BL, counts_BL)
        of_tokens = layers * self.of_tokens + accounting.matrix_size(self.beside)
        of_layer = self.position_products(counts_BL, pairs)
        return of_tokens * accounting.count(counts_BL) + layers * of_layer

    @property
    def of_tokens(self) -> float:
        """The size of the matrices of a layer that each token is multiplied with."""
        of_distances = 0 if self.config.buckets else 2 * self.config.d_model**2
        return accounting.matrix_size(self.stack) / self.config.num_layers - of_distances

    def position_products(self, counts_BL: jax.Array, pairs: jax.Array) -> jax.Array:
        """Multiply-adds of a layer for so many pairs of a query and a key, float32 [].

        Four a pair: two with contents and values, and two with distances. The vectors of distances
        are multiplied with two matrices, once for all rows of a batch.
        """
        length, width = counts_BL.shape[1], float(self.config.d_model)
        rows = np.unique(self.config.rows(np.arange(1 - length, length))).size
        return 2.0 * rows * width**2 + 4.0 * width * pairs

    def hidden(self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST) -> States:
        """States [B, L, D]; `key` None: without dropout.

        Raises:
          ValueError: the rows are longer than there are positions.
        """
        return self.run(batch, self.view(batch), key, want=want)

    def view(self, batch: Batch) -> DisentangledView:
        """What all layers look through."""
        traits = Traits(segments=batch.get("encoder_segment_ids"))
        distances = self.distances[...]
        if self.distance_norm is not None:
            distances = self.distance_norm(distances)
        mask = Mask(present=batch["encoder_attention_mask"], queries=traits, keys=traits)
        return DisentangledView(mask=mask, distances=distances)

    def run(
        self,
        batch: Batch,
        view: DisentangledView,
        key: jax.Array | None,
        *,
        want: Want = LAST,
        layers: int | None = None,
    ) -> States:
        """The states of the first `layers`, None for all, 0: the embeddings; at padding, 0.

        Raises:
          ValueError: the rows are longer than there are positions.
        """
        tokens_BL, counts_BL = batch["encoder_input_tokens"], batch["encoder_attention_mask"]
        embeddings.check_length(tokens_BL.shape[1], max_positions=self.config.max_positions)
        keys = subkeys(key, 3)
        x_BLD = self.embedding(tokens_BL, keys[0])
        x_BLD = jnp.where(counts_BL[..., None] > 0, x_BLD, 0)

        def encode(x_BLD: jax.Array, part: slice | None) -> States:
            heads_BNH = batch.get("encoder_head_mask")
            return self.stack.encode(
                x_BLD, views=view, heads_BNH=heads_BNH, key=keys[1], want=want, part=part
            )

        if layers == 0:
            return States(x_BLD)
        if self.beside is None:
            return encode(x_BLD, None if layers is None else slice(layers))
        first = encode(x_BLD, slice(1))
        first = with_last(first, self.beside(first.last, x_BLD, texts(batch), keys[2]))
        if 1 in (layers, self.config.num_layers):
            return first
        return _joined(first, encode(first.last, slice(1, layers)))


def _joined(first: States, rest: States) -> States:
    """The states of both parts of the layers; those of `rest` begin with what it reads."""
    states, attention = rest.states, rest.attention
    if first.states is not None and states is not None:
        states = jnp.concatenate([first.states[:1], states])
    if first.attention is not None and attention is not None:
        attention = jnp.concatenate([first.attention, attention])
    return States(rest.last, states, attention)


def _positions(config: Config, rngs: nnx.Rngs) -> nnx.Param:
    """The table of absolute positions [P, D]; its vectors come after all layers but the last."""
    shape, axes = (config.max_positions, config.d_model), ("positions", "embed")
    return above(param(config.init, shape, axes=axes, multiplied=False, rngs=rngs))


class Deberta(EncoderPretraining):
    """A DeBERTa with the head that it is pretrained with, which predicts masked tokens.

    The enhanced mask decoder tells the head where in its text a token is (section 3.2): the last
    layer runs twice, with keys and values from the layer before it; its first queries are these
    states plus vectors of absolute positions. Positions that are not asked for are not computed.
    """

    encoder: Encoder

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(config, rngs=rngs)
        self.positions = _positions(config, rngs) if config.mask_decoder else None
        self.mlm = MaskedLanguageHead(
            (config.d_model, config.d_model),
            config.vocab_size,
            init=config.init,
            activation=config.activation,
            epsilon=config.norm_epsilon,
            dtype=config.dtype,
            rngs=rngs,
        )
        self.sentence = None
        self.config = config

    def asked(
        self, batch: Batch, key: jax.Array | None = None, *, at_BQ: jax.Array | None = None
    ) -> jax.Array:
        """The states that the head reads, [B, Q, D].

        They are those at the places `at_BQ` of rows, int32; None: those of all.
        """
        if self.positions is None:
            x_BLD = self.encoder.hidden(batch, key).last
            return x_BLD if at_BQ is None else at_positions(x_BLD, at_BQ)
        keys, view = subkeys(key, 3), self.encoder.view(batch)
        x_BLD = self.encoder.run(batch, view, keys[0], layers=self.config.num_layers - 1).last
        places_BL = batch.get("encoder_positions")
        if places_BL is None:
            places_BL = embeddings.positions_in_row(batch["encoder_input_tokens"])
        query_BQD = x_BLD + self.positions[...][places_BL].astype(x_BLD.dtype)
        if at_BQ is not None:
            query_BQD, view = at_positions(query_BQD, at_BQ), _asking(view, at_BQ)
        heads_BNH = batch.get("encoder_head_mask")
        if heads_BNH is not None:
            view = view.with_heads(heads_BNH[:, -1])
        layer = gathered_layers(jax.tree.map(lambda leaf: leaf[-1], self.encoder.stack.layers))
        memory = layer.attention.keys_values(x_BLD)
        for turn in keys[1:]:
            of_turn = subkeys(turn, 2)
            query_BQD, _ = layer.attended(
                layer.attention_norm,
                layer.attention,
                query_BQD,
                memory,
                view=view,
                key=of_turn[0],
            )
            query_BQD = layer.feed_forward(query_BQD, of_turn[1])
        return query_BQD

    def masked_states(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        return self.asked(batch, key, at_BQ=batch["masked_positions"])

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """`mlm`, over masked tokens. Metrics: `mlm_accuracy`, `mlm_pseudo_perplexity`."""
        terms, metrics = self.masked_terms(self.masked_states(batch, key), batch)
        return terms, metrics, carry

    def logits(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        return self.mlm(self.asked(batch, key), self.encoder.tokens)

    def body_products(self, batch: Batch) -> jax.Array:
        encoder, counts_BL = self.encoder, texts(batch)
        if self.positions is None:
            return encoder.products(counts_BL)
        masked_BK = jnp.take_along_axis(counts_BL, batch["masked_positions"], axis=1)
        masked_BK = jnp.where(batch["masked_loss_weights"] > 0, masked_BK, 0)
        before = encoder.products(counts_BL, layers=self.config.num_layers - 1)
        memory = 2.0 * self.config.d_model**2  # of keys and values, formed once
        products = before + memory * accounting.count(counts_BL)
        products += 2 * (encoder.of_tokens - memory) * accounting.count(masked_BK)
        pairs = masks.visible_pairs(masked_BK, counts_BL)
        return products + 2 * encoder.position_products(counts_BL, pairs)


def _asking(view: DisentangledView, at_BQ: jax.Array) -> DisentangledView:
    """The view of the queries at these places alone."""
    mask = view.mask
    assert mask is not None
    segments_BL = mask.queries.segments
    if segments_BL is not None:
        segments_BQ = jnp.take_along_axis(segments_BL, at_BQ, axis=1)
        mask = dataclasses.replace(mask, queries=mask.queries._replace(segments=segments_BQ))
    return dataclasses.replace(view, mask=mask, asking=at_BQ)

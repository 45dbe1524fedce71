"""T5 and its kin: 1.0, 1.1, mT5, umT5, ByT5 (Raffel et al., 2020; Shazeer, 2020; Xue et al., 2021).

Suffixes: B batch, L target length, M input length, T cache length, D d_model, H heads, K d_kv,
V vocabulary, N layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.layers import masks
from t5x_like.layers.attention import Attention, KeysValues
from t5x_like.layers.basic import Embedding, Logits, RMSNorm, dropout, subkeys
from t5x_like.layers.blocks import DecoderLayer, EncoderLayer, Parts, insert
from t5x_like.layers.losses import token_sums
from t5x_like.layers.mlp import Mlp
from t5x_like.layers.positions import RelativeBias
from t5x_like.layers.stack import Policy, Stack

if TYPE_CHECKING:
    from t5x_like.protocols import Batch, Metrics


@dataclasses.dataclass(frozen=True)
class Config:
    """Architecture and loss of a T5; the defaults are T5 small's (T5, section 2.1 and 3.7)."""

    vocab_size: int = 32128  # rows of the table: the vocabulary's ids, rounded up
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    d_kv: int = 64  # width of a head; num_heads * d_kv need not be d_model
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    mlp: Callable[..., nnx.Module] = Mlp  # 1.1 and later: layers.mlp.GatedMlp
    tied_logits: bool = True  # 1.1 and later: False
    relative_bias_per_layer: bool = False  # umT5: True, otherwise one table a stack
    relative_buckets: int = 32
    relative_max_distance: int = 128
    dropout_rate: float = 0.0
    dtype: DTypeLike = "float32"  # of the computation; parameters are float32
    scan_unroll: int = 1  # layers compiled in a row: 1 scans, 0 unrolls the whole stack
    remat: Policy | None = None  # what the backward pass finds stored; None: everything
    z_loss: float = 1e-4
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "d_model", "d_ff", "num_heads", "d_kv")
        for name in (*sizes, "num_encoder_layers", "num_decoder_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"t5.Config.{name} must be at least 1, got {getattr(self, name)}")
        if self.scan_unroll < 0:
            raise ValueError(f"t5.Config.scan_unroll must not be negative, got {self.scan_unroll}")
        for name in ("dropout_rate", "label_smoothing"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"t5.Config.{name} must be in [0, 1), got {getattr(self, name)}")


def _relative(config: Config, *, bidirectional: bool) -> Callable[[nnx.Rngs], RelativeBias]:
    return lambda rngs: RelativeBias(
        config.num_heads,
        bidirectional=bidirectional,
        num_buckets=config.relative_buckets,
        max_distance=config.relative_max_distance,
        rngs=rngs,
    )


def _parts(config: Config, *, bidirectional: bool) -> Parts:
    d_model, dtype = config.d_model, config.dtype
    relative = _relative(config, bidirectional=bidirectional)
    return Parts(
        norm=lambda rngs: RMSNorm(d_model, dtype=dtype, rngs=rngs),
        attention=lambda rngs: Attention(
            d_model, config.num_heads, d_kv=config.d_kv, dtype=dtype, rngs=rngs
        ),
        mlp=lambda rngs: config.mlp(d_model, config.d_ff, dtype=dtype, rngs=rngs),
        relative=relative if config.relative_bias_per_layer else None,
        dropout_rate=config.dropout_rate,
    )


def _side(
    config: Config,
    layer: type[EncoderLayer] | type[DecoderLayer],
    *,
    num_layers: int,
    bidirectional: bool,
    rngs: nnx.Rngs,
) -> tuple[Stack, RMSNorm, RelativeBias | None]:
    """The layers of the encoder or the decoder, their last norm and the bias they share."""
    parts = _parts(config, bidirectional=bidirectional)
    stack = Stack(
        lambda rngs: layer(parts, rngs=rngs),
        num_layers,
        rngs=rngs,
        unroll=config.scan_unroll,
        remat=config.remat,
    )
    shared = None
    if not config.relative_bias_per_layer:
        shared = _relative(config, bidirectional=bidirectional)(rngs)
    return stack, parts.norm(rngs), shared


def _output(config: Config, rngs: nnx.Rngs) -> Logits:
    init = nnx.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
    return Logits(config.d_model, config.vocab_size, init=init, rngs=rngs)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """What decoding keeps between positions."""

    past: KeysValues  # of the decoder's own positions, [N, B, T, H, K]
    memory: KeysValues  # of the encoder's output, computed once, [N, B, M, H, K]
    memory_mask: jax.Array  # bool [B, 1, 1, M]


class T5(nnx.Module):
    """An encoder-decoder whose loss is the cross entropy of the decoder's targets.

    A batch holds int32 `encoder_input_tokens` [B, M], `decoder_input_tokens` and
    `decoder_target_tokens` [B, L], float32 `decoder_loss_weights` [B, L], and, when rows are
    packed, `encoder_segment_ids` and `decoder_segment_ids` (0 is padding). No query sees a token 0.
    """

    padding: ClassVar = 0

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        normal = nnx.initializers.normal(1.0)
        self.embedding = Embedding(config.vocab_size, config.d_model, init=normal, rngs=rngs)
        self.encoder, self.encoder_norm, self.encoder_relative = _side(
            config,
            EncoderLayer,
            num_layers=config.num_encoder_layers,
            bidirectional=True,
            rngs=rngs,
        )
        self.decoder, self.decoder_norm, self.decoder_relative = _side(
            config,
            DecoderLayer,
            num_layers=config.num_decoder_layers,
            bidirectional=False,
            rngs=rngs,
        )
        self.output = None if config.tied_logits else _output(config, rngs)
        self.config = config

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The one term's denominator: the sum of `decoder_loss_weights`."""
        return {"tokens": batch["decoder_loss_weights"].astype(jnp.float32).sum()}

    def initial_carry(self, batch_size: int) -> tuple[()]:
        return ()

    def loss(
        self,
        batch: Batch,
        key: jax.Array | None,
        carry: tuple[()],
        weights: dict[str, jax.Array],
    ) -> tuple[jax.Array, Metrics, tuple[()]]:
        """(cross entropy + z_loss * log(Z)^2) over weighted target tokens (T5, section 3.1.2).

        Metrics `loss` (without the z term), `z_loss` and `accuracy` are weighted by target tokens.
        `tokens` (all that are not padding) and `flops` (see `flops`) count this batch; their weight
        is the batch's share of the target tokens, so that over microbatches it adds up to 1.
        """
        weights_BL = batch["decoder_loss_weights"].astype(jnp.float32)
        sums = token_sums(
            self.logits(batch, key),
            batch["decoder_target_tokens"],
            weights_BL=weights_BL,
            label_smoothing=self.config.label_smoothing,
        )
        total = jnp.where(weights["tokens"] > 0, weights["tokens"], 1.0)
        here = weights_BL.sum()
        z_loss = self.config.z_loss * sums.squared_log_z
        encoder_BM, decoder_BL = _segments(batch)
        metrics = {
            "loss": (sums.cross_entropy, here),
            "z_loss": (z_loss, here),
            "accuracy": (sums.correct, here),
            "tokens": (_count(encoder_BM) + _count(decoder_BL), here / total),
            "flops": (self.flops(batch), here / total),
        }
        return (sums.cross_entropy + z_loss) / total, metrics, carry

    def logits(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """Float32 [B, L, V]; `key` None: without dropout."""
        encoder_key, decoder_key = subkeys(key, 2)
        encoder_segments_BM = batch.get("encoder_segment_ids")
        encoded_BMD = self.encode(
            batch["encoder_input_tokens"], encoder_key, segments_BM=encoder_segments_BM
        )
        cross_mask = masks.not_padding(batch["encoder_input_tokens"])
        targets_BL = batch["decoder_target_tokens"]
        self_mask = masks.causal(targets_BL.shape[1]) & masks.not_padding(targets_BL)
        if encoder_segments_BM is not None:
            segments_BL = batch["decoder_segment_ids"]
            cross_mask &= masks.same_segment(segments_BL, encoder_segments_BM)
            self_mask &= masks.same_segment(segments_BL, segments_BL)
        return self._decode(
            batch["decoder_input_tokens"],
            encoded_BMD,
            self_mask=self_mask,
            cross_mask=cross_mask,
            key=decoder_key,
        )

    def encode(
        self,
        tokens_BM: jax.Array,
        key: jax.Array | None = None,
        *,
        segments_BM: jax.Array | None = None,
    ) -> jax.Array:
        """The encoder's output after its last norm, [B, M, D] in the computation's dtype."""
        rate = self.config.dropout_rate
        first, stack, last = subkeys(key, 3)
        mask = masks.not_padding(tokens_BM)
        if segments_BM is not None:
            mask &= masks.same_segment(segments_BM, segments_BM)
        length = tokens_BM.shape[1]
        bias = None if self.encoder_relative is None else self.encoder_relative(length, length)

        def body(layer: EncoderLayer, x_BMD: jax.Array, key: jax.Array | None) -> tuple:
            return layer(x_BMD, mask=mask, bias=bias, key=key), None

        x_BMD = self.embedding(tokens_BM, dtype=self.config.dtype)
        x_BMD = dropout(x_BMD, first, rate=rate, shared=(1,))
        x_BMD, _ = self.encoder(body, x_BMD, _layer_keys(stack, self.encoder))
        return dropout(self.encoder_norm(x_BMD), last, rate=rate, shared=(1,))

    def _decode(
        self,
        tokens_BL: jax.Array,
        encoded_BMD: jax.Array,
        *,
        self_mask: jax.Array,
        cross_mask: jax.Array,
        key: jax.Array | None,
    ) -> jax.Array:
        rate = self.config.dropout_rate
        first, stack, last = subkeys(key, 3)
        length = tokens_BL.shape[1]
        bias = None if self.decoder_relative is None else self.decoder_relative(length, length)

        def body(layer: DecoderLayer, x_BLD: jax.Array, key: jax.Array | None) -> tuple:
            x_BLD = layer(
                x_BLD, encoded_BMD, self_mask=self_mask, cross_mask=cross_mask, bias=bias, key=key
            )
            return x_BLD, None

        x_BLD = self.embedding(tokens_BL, dtype=self.config.dtype)
        x_BLD = dropout(x_BLD, first, rate=rate, shared=(1,))
        x_BLD, _ = self.decoder(body, x_BLD, _layer_keys(stack, self.decoder))
        x_BLD = dropout(self.decoder_norm(x_BLD), last, rate=rate, shared=(1,))
        return self._score(x_BLD)

    def _score(self, x_BLD: jax.Array) -> jax.Array:
        if self.output is not None:
            return self.output(x_BLD)
        # The table has unit variance: scaled here, where it is cheaper than at the logits.
        return self.embedding.attend(x_BLD.astype(jnp.float32) * self.config.d_model**-0.5)

    def init_cache(
        self, encoded_BMD: jax.Array, encoder_tokens_BM: jax.Array, *, max_length: int
    ) -> Cache:
        """An empty cache for `max_length` positions; projects the encoder's output, once."""

        def body(layer: DecoderLayer, encoded_BMD: jax.Array, _: None) -> tuple:
            return encoded_BMD, layer.cross_attention.keys_values(encoded_BMD)

        _, memory = self.decoder(body, encoded_BMD)
        empty = jax.tree.map(
            lambda x: jnp.zeros((*x.shape[:2], max_length, *x.shape[3:]), x.dtype), memory
        )
        return Cache(empty, memory, masks.not_padding(encoder_tokens_BM))

    def decode_step(
        self, cache: Cache, tokens_B: jax.Array, position: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """Logits after the tokens at `position` (int32, from 0), float32 [B, V]; the new cache."""
        bias = None
        if self.decoder_relative is not None:
            bias = self.decoder_relative.row(position, cache.past.keys.shape[2])

        def body(layer: DecoderLayer, x_B1D: jax.Array, layer_cache: tuple) -> tuple:
            return layer.step(
                x_B1D, *layer_cache, position=position, memory_mask=cache.memory_mask, bias=bias
            )

        x_B1D = self.embedding(tokens_B[:, None], dtype=self.config.dtype)
        x_B1D, new = self.decoder(body, x_B1D, (cache.past, cache.memory))
        past = insert(cache.past, new, position=position, axis=2)
        logits_BV = self._score(self.decoder_norm(x_B1D))[:, 0]
        return logits_BV, dataclasses.replace(cache, past=past)

    def flops(self, batch: Batch) -> jax.Array:
        """Floating point operations of a training step on this batch, float32 [].

        Matrix products only, two operations a multiply-add, backward twice forward. Counted for
        tokens that are not padding and for pairs of positions that the masks let through; computing
        again under `remat` is not counted.
        """
        encoder, decoder = self.encoder.layers, self.decoder.layers
        cross = decoder.cross_attention
        encoder_BM, decoder_BL = _segments(batch)
        head = self.config.d_model * self.config.vocab_size
        per_input = _size(encoder.attention, encoder.mlp, cross.key, cross.value)
        per_target = _size(decoder.self_attention, cross.query, cross.out, decoder.mlp) + head
        # Two products a pair, with the keys and with the values.
        per_pair = 2 * self.config.num_heads * self.config.d_kv
        encoder_pairs = masks.visible_pairs(encoder_BM, encoder_BM)
        decoder_pairs = masks.visible_pairs(decoder_BL, decoder_BL, causal=True)
        decoder_pairs += masks.visible_pairs(decoder_BL, encoder_BM)
        pairs = (
            encoder_pairs * self.config.num_encoder_layers
            + decoder_pairs * self.config.num_decoder_layers
        )
        products = (
            per_input * _count(encoder_BM) + per_target * _count(decoder_BL) + per_pair * pairs
        )
        return 3.0 * 2.0 * products


def _layer_keys(key: jax.Array | None, stack: Stack) -> jax.Array | None:
    return None if key is None else jax.random.split(key, stack.num_layers)


def _segments(batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Which example each token belongs to, from 1; 0 is padding."""
    encoder, decoder = batch["encoder_input_tokens"], batch["decoder_target_tokens"]
    if "encoder_segment_ids" in batch:
        return batch["encoder_segment_ids"], batch["decoder_segment_ids"]
    return (encoder > 0).astype(jnp.int32), (decoder > 0).astype(jnp.int32)


def _count(segments: jax.Array) -> jax.Array:
    return (segments > 0).sum().astype(jnp.float32)


def _size(*modules: Any) -> float:
    """Number of parameters, all of them of matrices that each token is multiplied with."""
    return float(sum(leaf.size for leaf in jax.tree.leaves(modules)))

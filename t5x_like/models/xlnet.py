"""XLNet: predicts tokens in a random order and remembers earlier text (Yang et al., 2019).

Suffixes: B batch, L length, P predicted positions, Q queries (L or P), S = L + P states, M memory,
F directions, C relative positions, D d_model, N layers, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import (
    LAST,
    CountsFlops,
    GivesStates,
    GuessesMasked,
    States,
    Want,
    Writes,
)
from t5x_like.layers.attention.masks import Mask
from t5x_like.layers.attention.relative_attention import (
    Biases,
    RelativeAttention,
    RelativeView,
    relative_positions,
)
from t5x_like.layers.basics import activations
from t5x_like.layers.basics.depth import above, below
from t5x_like.layers.basics.dropout import Dropouts, dropout, dropout_hidden, subkeys
from t5x_like.layers.basics.mlp import Activation, Mlp
from t5x_like.layers.basics.modules import ZEROS, Embedding, LayerNorm, param
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.families import xlnet_decoding
from t5x_like.layers.families.body import EncoderBody
from t5x_like.layers.families.xlnet_inputs import Reading, content_alone, masks, permuted, streams
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import token_sums
from t5x_like.layers.losses.term_loss import TermLoss
from t5x_like.layers.stacks import transformer_config
from t5x_like.layers.stacks.two_streams import TwoStreamLayer, TwoStreams, TwoStreamStack

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(transformer_config.Transformer):
    """Architecture of an XLNet; the defaults are XLNet base's (XLNet, appendix A.5)."""

    vocab_size: int = 32000
    d_model: int = 768
    d_ff: int = 3072
    num_heads: int = 12
    num_layers: int = 12
    dropout_rate: float = 0.1
    attention_dropout_rate: float = 0.1
    # Exact, as in the weights published at Hugging Face; the original code has the tanh form.
    activation: Activation = activations.gelu
    norm_epsilon: float = 1e-12
    init_std: float = 0.02
    mem_len: int = 0  # positions of earlier text that pretraining remembers
    reuse_len: int | None = None  # first positions of a row that are remembered: 0 all, None half
    causal: bool = False  # positions see only earlier ones: attn_type "uni"
    same_length: bool = False  # causal; each position sees as many as the memory holds
    clamp_len: int | None = None  # larger distances count as this one
    untie_r: bool = True  # each layer has its own query biases

    may_be_zero: ClassVar = ("scan_unroll", "mem_len", "reuse_len")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.same_length and not self.causal:
            raise ValueError("xlnet.Config.same_length=True needs causal=True, got causal=False")

    @property
    def dropouts(self) -> Dropouts:
        rate = self.dropout_rate
        return Dropouts(hidden=rate, attention=self.attention_dropout_rate, mlp=rate)

    @property
    def init(self) -> Callable[..., jax.Array]:
        return nnx.initializers.normal(self.init_std)

    def reused(self, length: int) -> int:
        """How many positions of a row are remembered."""
        return length // 2 if self.reuse_len is None else self.reuse_len or length


class Encoder(EncoderBody, nnx.Module):
    """An XLNet without its output bias: embeddings and layers.

    For `hidden`, a batch holds int32 `encoder_input_tokens`, `encoder_attention_mask` (1 for
    tokens, 0 for padding) and, where there are segments, `encoder_token_type_ids`, [B, L] each.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        init, dtype = config.init, config.dtype

        def biases(rngs: nnx.Rngs) -> Biases:
            return Biases(config.num_heads, config.d_kv, init=init, rngs=rngs)

        def layer(rngs: nnx.Rngs) -> TwoStreamLayer:
            return TwoStreamLayer(
                attention=lambda rngs: RelativeAttention(
                    config.d_model,
                    config.num_heads,
                    init=init,
                    dtype=dtype,
                    kernel=config.kernel,
                    rngs=rngs,
                ),
                biases=biases if config.untie_r else None,
                mlp=lambda rngs: Mlp(
                    config.d_model,
                    config.d_ff,
                    activation=config.activation,
                    bias=True,
                    inits=(init, init),
                    dtype=dtype,
                    rngs=rngs,
                ),
                norm=lambda rngs: LayerNorm(
                    config.d_model, epsilon=config.norm_epsilon, dtype=dtype, rngs=rngs
                ),
                dropouts=config.dropouts,
                rngs=rngs,
            )

        self.tokens = Embedding(config.vocab_size, config.d_model, init=init, rngs=rngs)
        # The start state of a predicted position; the published code leaves it to TensorFlow.
        first = param(
            nnx.initializers.glorot_uniform(),
            (1, config.d_model),
            axes=(None, "embed"),
            multiplied=False,
            rngs=rngs,
        )
        self.predicted = below(first)
        self.biases = None if config.untie_r else below(biases(rngs))
        self.stack = TwoStreamStack(
            layer, config.num_layers, rngs=rngs, unroll=config.scan_unroll, remat=config.remat
        )
        self.config = config

    def hidden(
        self,
        batch: Batch,
        key: jax.Array | None = None,
        *,
        want: Want = LAST,
    ) -> States:
        """States [B, L, D] of the content stream; without dropout where `key` is None."""
        heads_BNH = batch.get("encoder_head_mask")
        return self.read(content_alone(batch), heads_BNH=heads_BNH, key=key, want=want).content

    def read(
        self,
        reading: Reading,
        memory_BNMD: jax.Array | None = None,
        *,
        heads_BNH: jax.Array | None = None,
        key: jax.Array | None = None,
        want: Want = LAST,
    ) -> TwoStreams:
        """Both streams, or without targets one. Every position sees the memory, maybe empty.

        `heads_BNH` is as in `EncoderStack.encode`.
        """
        config, keys = self.config, subkeys(key, 4)
        length = reading.tokens.shape[1]
        memory_len = 0 if memory_BNMD is None else memory_BNMD.shape[2]
        positions = relative_positions(
            length,
            memory_len + length,
            width=config.d_model,
            backward_B=reading.backward,
            clamp=config.clamp_len,
        )
        # One draw for all rows, as in Transformer-XL: a draw a row would need a projection a row.
        vectors = dropout(positions.vectors, keys[0], rate=config.dropout_rate)
        positions = positions._replace(vectors=vectors.astype(config.dtype))
        x_BSD = self.tokens(reading.tokens, dtype=config.dtype)
        if reading.targets is not None:
            shape = (*reading.targets.positions.shape, config.d_model)
            g_BPD = jnp.broadcast_to(self.predicted[...].astype(config.dtype), shape)
            x_BSD = jnp.concatenate([x_BSD, g_BPD], axis=1)
        both = self.stack.read(
            dropout_hidden(x_BSD, keys[1], dropouts=config.dropouts),
            memory_BNMD,
            views=streams(
                reading,
                self.masks(reading, memory_len),
                RelativeView(relative=positions, biases=self.biases),
                memory_len=memory_len,
            ),
            reuse_len=config.reused(length),
            heads_BNH=heads_BNH,
            key=keys[2],
            want=want,
        )

        def dropped(hidden: States) -> States:
            return hidden._replace(
                last=dropout_hidden(hidden.last, keys[3], dropouts=config.dropouts)
            )

        if both.query is None:
            return both._replace(content=dropped(both.content))
        return both._replace(query=dropped(both.query))

    def masks(self, reading: Reading, memory_len: int) -> Sequence[Mask | None]:
        """The mask of each stream's positions."""
        return masks(
            reading,
            memory_len=memory_len,
            causal=self.config.causal,
            same_length=self.config.same_length,
        )


class XLNet(TermLoss):
    """XLNet as it is pretrained: the mean of -log p over predicted tokens (section 2.2).

    A batch holds what `Encoder` reads; int32 `masked_positions` and `masked_targets`, float32
    `masked_loss_weights`, [B, P] each; int32 `permutation_query_order` and `permutation_key_order`,
    [B, L] each: position i may not see j where query[i] <= key[j]; int32 [B] `backward`, 1 for rows
    of reversed text; and with memory `reset_memory`, 1 for rows that start a new text.

    The carry is the memory, [B, N, M, D]: what each layer read before, 0 where there is nothing.
    """

    abilities: ClassVar[tuple[type, ...]] = (CountsFlops, GivesStates, GuessesMasked, Writes)
    reads_apart: ClassVar = False
    max_tokens: ClassVar = None

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(config, rngs=rngs)
        self.bias = above(param(ZEROS, (config.vocab_size,), axes=("vocab",), rngs=rngs))
        self.config = config

    @property
    def padding(self) -> int | None:
        """None, as a mask tells what is padding (`protocols.Model`)."""
        return None

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The one term's denominator: the predicted tokens."""
        return {"tokens": batch["masked_loss_weights"].astype(jnp.float32).sum()}

    def initial_carry(self, batch_size: int) -> Carry:
        config = self.config
        if not config.mem_len:
            return ()
        shape = (batch_size, config.num_layers, config.mem_len, config.d_model)
        return jnp.zeros(shape, config.dtype)

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """The mean over predicted tokens, and the memory for the next step.

        Metrics `loss`, `accuracy` and `pseudo_perplexity` are weighted by predicted tokens.
        """
        scores, carry = self._predicted(batch, key, carry)
        weights_BP = batch["masked_loss_weights"].astype(jnp.float32)
        sums = token_sums(scores, batch["masked_targets"], weights_BL=weights_BP)
        here = weights_BP.sum()
        metrics = {
            "loss": (sums.cross_entropy, here),
            "accuracy": (sums.correct, here),
            "pseudo_perplexity": (sums.nll, here),
        }
        return {"tokens": Term(sums.cross_entropy, here)}, metrics, carry

    def counted(self, batch: Batch) -> dict[str, jax.Array]:
        tokens = accounting.count(batch["encoder_attention_mask"])
        return {"tokens": tokens, "flops": self.flops(batch)}

    def logits(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """Logits at the predicted positions, without a memory: float32 [B, P, V].

        In training, a new text sees a memory of zeros, which takes a share of its attention.
        """
        return self._predicted(batch, key, ())[0].logits()

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """The states of the content stream, which reads from both sides."""
        return self.encoder.hidden(batch, want=want)

    def guesses(self, batch: Batch) -> jax.Array:
        """Logits at `masked_positions`, float32 [B, P, V].

        Each blank sees all of the text except the blanks; rows of the objective have an order.
        """
        if "permutation_query_order" in batch:
            return self.logits(batch)
        tokens_BL = batch["encoder_input_tokens"]
        return self.logits(
            {
                **batch,
                "permutation_query_order": jnp.ones_like(tokens_BL),
                "permutation_key_order": jnp.where(batch["blanks"] > 0, 2, 0),
                "backward": jnp.zeros(len(tokens_BL), jnp.int32),
            }
        )

    def token_scores(self, x_BPD: jax.Array) -> TokenScores:
        """The scores of states [B, P, D]."""
        return self.encoder.tokens.token_scores(x_BPD, self.bias[...])

    def prefill(self, batch: Batch, *, max_length: int) -> xlnet_decoding.Cache:
        """Reads prompts from left to right (`xlnet_decoding.prefill`)."""
        return xlnet_decoding.prefill(self.encoder, batch, max_length=max_length)

    def decode_step(
        self, cache: xlnet_decoding.Cache, tokens_B: jax.Array, position: jax.Array
    ) -> tuple[jax.Array, xlnet_decoding.Cache]:
        """Logits after the tokens at `position` (int32 []), float32 [B, V]; the new cache."""
        x_B1D, cache = xlnet_decoding.step(self.encoder, cache, tokens_B, position=position)
        return self.token_scores(x_B1D).logits()[:, 0], cache

    def flops(self, batch: Batch) -> jax.Array:
        """Floating point operations of a training step on this batch, float32 [].

        It counts matrix products only, backward twice forward. It leaves out padding, slots without
        weight, and pairs of positions that the masks hide.
        """
        config, layers = self.config, self.encoder.stack.layers
        attention = layers.attention
        seen = accounting.matrix_size(attention.key, attention.value)
        distances = accounting.matrix_size(attention.relative)
        rest = accounting.matrix_size(layers) - seen - distances
        counts = (batch["encoder_attention_mask"] > 0, batch["masked_loss_weights"] > 0)
        tokens, targets = map(accounting.count, counts)
        remembered = config.mem_len * accounting.count(counts[0].any(axis=1))
        looks = self.encoder.masks(permuted(batch), config.mem_len)
        pairs = sum(map(_pairs, looks, counts), jnp.float32(0))
        # Three products a pair: with contents, positions and values.
        products = 3.0 * config.d_model * config.num_layers * pairs
        products += rest * (tokens + targets) + seen * (tokens + remembered)
        products += distances * 2.0 * (2 * counts[0].shape[1] + config.mem_len)
        products += targets * float(self.encoder.tokens.table.size)
        return accounting.step_flops(products)

    def _predicted(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[TokenScores, Carry]:
        memory = None
        if not isinstance(carry, tuple):
            starts_new = batch["reset_memory"][:, None, None, None] > 0
            memory = jnp.where(starts_new, jnp.zeros((), carry.dtype), carry)
        heads_BNH = batch.get("encoder_head_mask")
        streams = self.encoder.read(permuted(batch), memory, heads_BNH=heads_BNH, key=key)
        assert streams.query is not None  # there are targets
        scores = self.token_scores(streams.query.last)
        return scores, () if streams.memory is None else streams.memory


def _pairs(mask: Mask | None, counts_BQ: jax.Array) -> jax.Array:
    """The number of keys that queries see, over queries that count: float32 []."""
    assert mask is not None  # the orders make one
    assert mask.keys.positions is not None
    seen = mask.dense(counts_BQ.shape[1], len(mask.keys.positions))
    assert seen is not None
    seen &= counts_BQ[:, None, :, None]
    return seen.sum(axis=(1, 2, 3)).astype(jnp.float32).sum()

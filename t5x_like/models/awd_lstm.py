"""AWD-LSTM, the language model of ULMFiT (Merity et al., 2018; Howard and Ruder, 2018).

Suffixes: B batch, L length, D width, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from t5x_like.core.abilities import LAST, CountsFlops, GivesStates, ScoresTargets, States, Want
from t5x_like.layers.basics.depth import above, at
from t5x_like.layers.basics.dropout import dropout, subkeys
from t5x_like.layers.basics.modules import ZEROS, Embedding, Logits, around_zero, param
from t5x_like.layers.basics.token_scores import TokenScores
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.target_loss import TargetLoss
from t5x_like.layers.recurrent.lstm import Inits, Lstm
from t5x_like.layers.stacks.transformer_config import check_fields

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Architecture and loss of an AWD-LSTM; the defaults are ULMFiT's for language models.

    Rates of dropout are of whole rows of the token table (`embedding`), of what the first layer
    reads (`input`), of what a layer hands to the next one (`hidden`), of what the last one gives
    (`output`), and of single weights from state to state (`weight`).
    """

    vocab_size: int = 60002
    d_embedding: int = 400  # also the width of the last layer, as the token table gives the logits
    cells: int = 1150  # of the other layers
    num_layers: int = 3
    tied_logits: bool = True
    embedding_dropout_rate: float = 0.02
    input_dropout_rate: float = 0.25
    hidden_dropout_rate: float = 0.15
    output_dropout_rate: float = 0.1
    weight_dropout_rate: float = 0.2
    dropout_multiplier: float = 1.0  # of these five rates
    activation_penalty: float = 2.0  # times the mean square of the last outputs, dropped
    temporal_penalty: float = 1.0  # times the mean square of their changes, before dropout
    z_loss: float = 0.0
    label_smoothing: float = 0.0
    dtype: DTypeLike = "float32"

    def __post_init__(self) -> None:
        check_fields(self)

    def rate(self, of: str) -> float:
        """The rate of dropout of a place, as it is applied.

        Args:
          of: "embedding", "input", "hidden", "output" or "weight".
        """
        return float(getattr(self, f"{of}_dropout_rate")) * self.dropout_multiplier

    @property
    def widths(self) -> list[int]:
        """The width of the table of tokens, and of each layer."""
        return [self.d_embedding, *[self.cells] * (self.num_layers - 1), self.d_embedding]


class _Read(NamedTuple):
    """Outputs [B, L, D] of the last layer, dropped and as they were, and all layers' states.

    `inputs` are the table's vectors and the outputs of all layers, as they were.
    """

    dropped: jax.Array
    last: jax.Array
    states: Carry
    inputs: list[jax.Array]


class AwdLstm(TargetLoss):
    """Predicts each token from those before it, in this step and in earlier ones.

    A batch holds int32 `decoder_input_tokens` and `decoder_target_tokens`, float32
    `decoder_loss_weights`, [B, L] each, and, where rows continue from batch to batch, int32
    `decoder_document_starts`: 1 where the state is emptied first. A token without a weight is
    padding and leaves the state as it is. The carry is the state of each layer.
    """

    abilities: ClassVar[tuple[type, ...]] = (CountsFlops, GivesStates, ScoresTargets)
    padding: ClassVar = None

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        widths, count = config.widths, config.num_layers

        self.embedding = Embedding(
            config.vocab_size, config.d_embedding, init=around_zero(0.1), rngs=rngs
        )
        self.layers = nnx.List(
            at(
                Lstm(
                    widths[n],
                    widths[n + 1],
                    init=Inits.same(around_zero(widths[n + 1] ** -0.5)),
                    recurrent_bias=True,
                    dtype=config.dtype,
                    rngs=rngs,
                ),
                n,
                of=count,
            )
            for n in range(count)
        )
        self.output = (
            None
            if config.tied_logits
            else Logits(
                config.d_embedding, config.vocab_size, init=around_zero(0.1), bias=True, rngs=rngs
            )
        )
        self.output_bias = (
            above(param(ZEROS, (config.vocab_size,), axes=("vocab",), rngs=rngs))
            if config.tied_logits
            else None
        )
        self.config = config

    def initial_carry(self, batch_size: int) -> Carry:
        """An empty state of each layer."""
        return tuple(layer.initial_state(batch_size) for layer in self.layers)

    def token_scores(self, x_BLD: jax.Array) -> TokenScores:
        if self.output is not None:
            return self.output.token_scores(x_BLD)
        assert self.output_bias is not None
        return self.embedding.token_scores(x_BLD, self.output_bias[...])

    def hidden(self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST) -> States:
        """The last layer's outputs, from an empty state.

        Of the states of all layers the narrower ones are filled up with zeros.
        """
        rows = len(batch["decoder_input_tokens"])
        read = self._read(batch, key, self.initial_carry(rows))
        if not want.states:
            return States(read.dropped)
        widest = max(self.config.widths)
        room = [(0, 0), (0, 0)]
        wide = [jnp.pad(x, [*room, (0, widest - x.shape[-1])]) for x in read.inputs]
        return States(read.dropped, jnp.stack(wide))

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """The states of an encoder's batch, each of a token and those before it."""
        tokens_BL = batch["encoder_input_tokens"]
        present_BL = batch.get("encoder_attention_mask", jnp.ones_like(tokens_BL))
        read = {"decoder_input_tokens": tokens_BL, "decoder_loss_weights": present_BL}
        return self.hidden(read, want=want)

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """Cross entropy, and in training the penalties of large and of changing outputs."""
        config, weights = self.config, self.weights(batch)
        weights_BL = batch["decoder_loss_weights"].astype(jnp.float32)
        read = self._read(batch, key, carry)
        terms, metrics = self.of_scores(batch, self.token_scores(read.dropped))
        if key is None:
            return terms, metrics, read.states
        large = _mean_square(read.dropped)
        changes = _mean_square(read.last[:, 1:] - read.last[:, :-1])
        penalties = {
            "activation": ((large * weights_BL).sum(), config.activation_penalty),
            "temporal": ((changes * _pairs(weights_BL)).sum(), config.temporal_penalty),
        }
        for name, (total, coefficient) in penalties.items():
            terms[name] = Term(total, weights[name], coefficient)
            metrics[f"{name}_penalty"] = (total, weights[name])
        return terms, metrics, read.states

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The weighted tokens, and the pairs of neighbours."""
        weights_BL = batch["decoder_loss_weights"].astype(jnp.float32)
        total = weights_BL.sum()
        return {"tokens": total, "activation": total, "temporal": _pairs(weights_BL).sum()}

    def tokens(self, batch: Batch) -> jax.Array:
        return accounting.count(batch["decoder_loss_weights"])

    def flops(self, batch: Batch) -> jax.Array:
        head = self.config.d_embedding * self.config.vocab_size
        size = accounting.matrix_size([*self.layers]) + head
        return accounting.step_flops(size * self.tokens(batch))

    def _read(self, batch: Batch, key: jax.Array | None, carry: Carry) -> _Read:
        config = self.config
        keys = subkeys(key, 2 + 2 * config.num_layers)
        tokens_BL = batch["decoder_input_tokens"]
        starts_BL = batch.get("decoder_document_starts")
        keep_BL = None if starts_BL is None else 1 - starts_BL
        x_BLD = self.embedding(tokens_BL, dtype=config.dtype)
        inputs = [x_BLD]
        # The table's rows as a whole: a token is there everywhere or nowhere (section 4.3).
        rows_V = dropout(jnp.ones(config.vocab_size), keys[0], rate=config.rate("embedding"))
        x_BLD = _same_over_time(
            x_BLD * rows_V[tokens_BL][..., None].astype(config.dtype),
            keys[1],
            rate=config.rate("input"),
        )
        states = []
        for n, layer in enumerate(self.layers):
            recurrent = dropout(layer.recurrent[...], keys[2 + 2 * n], rate=config.rate("weight"))
            last_BLD, state = layer(
                x_BLD,
                carry[n],
                recurrent_PG=recurrent,
                keep_BL=keep_BL,
                counts_BL=batch["decoder_loss_weights"] > 0,
            )
            states.append(jax.tree.map(jax.lax.stop_gradient, state))
            is_last = n == config.num_layers - 1
            rate = config.rate("output" if is_last else "hidden")
            x_BLD = _same_over_time(last_BLD, keys[3 + 2 * n], rate=rate)
            inputs.append(last_BLD)
        return _Read(x_BLD, inputs[-1], tuple(states), inputs)


def _same_over_time(x_BLD: jax.Array, key: jax.Array | None, *, rate: float) -> jax.Array:
    """Dropout of the same units at all tokens of a row (section 4.2)."""
    return dropout(x_BLD, key, rate=rate, shared=(1,))


def _mean_square(x_BLD: jax.Array) -> jax.Array:
    return jnp.square(x_BLD.astype(jnp.float32)).mean(axis=-1)


def _pairs(weights_BL: jax.Array) -> jax.Array:
    """1 for neighbours of which both count, [B, L - 1]."""
    return ((weights_BL[:, 1:] > 0) & (weights_BL[:, :-1] > 0)).astype(jnp.float32)

"""ALBERT: BERT with narrow embeddings and layers that share parameters (Lan et al., 2020).

Suffixes: B batch, L length, D d_model, E width of the embeddings.
"""

from __future__ import annotations

import dataclasses

import jax
from flax import nnx

from t5x_like.layers.basics import activations
from t5x_like.layers.basics.depth import below
from t5x_like.layers.basics.mlp import Activation
from t5x_like.layers.basics.modules import Linear
from t5x_like.layers.families.encoder_pretraining import EncoderPretraining, sentence_head
from t5x_like.layers.losses import accounting
from t5x_like.layers.stacks.blocks import EncoderLayer
from t5x_like.layers.stacks.sharing import SHARING, SharedStack, Sharing, copies_in_groups
from t5x_like.models import bert


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(bert.Config):
    """Architecture of an ALBERT; the defaults are those of base, version 2 (ALBERT, table 1)."""

    vocab_size: int = 30000
    d_embedding: int | None = 128  # None: as wide as the model, without a projection
    sharing: Sharing = "all"  # what the layers share: all, attention, ffn or none
    num_groups: int = 1  # groups of layers that share
    inner_layers: int = 1  # different layers in a group, each run in turn
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    activation: Activation = activations.gelu_tanh

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sharing not in SHARING:
            raise ValueError(
                f"albert.Config.sharing must be one of {', '.join(SHARING)}, got {self.sharing!r}"
            )
        if self.sharing == "none" and self.num_groups != 1:
            raise ValueError(
                "albert.Config.num_groups counts groups that share, but sharing is 'none': got "
                f"{self.num_groups}"
            )
        if self.num_groups > self.num_layers:
            raise ValueError(
                f"albert.Config.num_groups must be at most num_layers={self.num_layers}, got "
                f"{self.num_groups}"
            )


def _projection(config: Config, rngs: nnx.Rngs) -> Linear:
    shape, axes = (config.width, config.d_model), (None, "embed")
    return below(Linear(shape, axes, init=config.init, bias=True, dtype=config.dtype, rngs=rngs))


class Trunk(bert.Trunk):
    """Turns embeddings into states: a projection, then the layers."""

    stack: SharedStack

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.project = None if config.d_embedding is None else _projection(config, rngs)
        made_of = bert.parts(config)
        self.stack = SharedStack(
            lambda rngs: EncoderLayer(made_of, rngs=rngs),
            copies_in_groups(
                config.num_layers, num_groups=config.num_groups, inner_layers=config.inner_layers
            ),
            sharing=config.sharing,
            rngs=rngs,
            unroll=config.scan_unroll,
            remat=config.remat,
        )


class Encoder(bert.Encoder):
    """An ALBERT without heads; it reads the batches of a BERT."""

    trunk: Trunk

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.embedding = bert.embedding(config, rngs)
        self.trunk = Trunk(config, rngs=rngs)
        self.config = config

    def products(self, counts_BL: jax.Array) -> jax.Array:
        stack = self.trunk.stack
        attended = accounting.encoder_products(
            self.trunk.project, counts_BL, num_layers=stack.num_layers, width=self.config.d_model
        )
        return attended + stack.matrix_size() * accounting.count(counts_BL)


class Albert(EncoderPretraining):
    """ALBERT with the heads it is pretrained with: masked language model, sentence order."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(config, rngs=rngs)
        self.mlm = bert.masked_head(config, rngs)
        self.sentence = sentence_head(config, rngs) if config.sentence_head else None
        self.config = config

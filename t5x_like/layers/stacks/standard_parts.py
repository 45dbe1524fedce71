"""The Transformer paper's layer as in BERT, BART and GPT, with biases and layer norms."""

from __future__ import annotations

import dataclasses
from typing import Any

from flax import nnx

from t5x_like.layers.attention.multi_head import Attention, Inits
from t5x_like.layers.basics import activations
from t5x_like.layers.basics.dropout import Dropouts
from t5x_like.layers.basics.mlp import Activation, GatedMlp, Mlp
from t5x_like.layers.basics.modules import Init, LayerNorm, RMSNorm
from t5x_like.layers.stacks import transformer_config
from t5x_like.layers.stacks.blocks import Parts, Placement


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(transformer_config.Transformer):
    """The settings of these families besides sizes."""

    attention_dropout_rate: float = 0.1  # dropout of attention probabilities
    activation: Activation = activations.gelu
    norm_epsilon: float = 1e-5
    init_std: float = 0.02

    @property
    def dropouts(self) -> Dropouts:
        return Dropouts(hidden=self.dropout_rate, attention=self.attention_dropout_rate)

    @property
    def init(self) -> Init:
        return nnx.initializers.normal(self.init_std)


def norm(
    config: Config, rngs: nnx.Rngs, *, width: int | None = None, bias: bool = True
) -> LayerNorm:
    """A norm as wide as the model, unless a `width` is given."""
    return LayerNorm(
        config.d_model if width is None else width,
        epsilon=config.norm_epsilon,
        dtype=config.dtype,
        rngs=rngs,
        bias=bias,
    )


def rms_norm(config: Config, rngs: nnx.Rngs) -> RMSNorm:
    """A norm without a mean, as wide as the model."""
    return RMSNorm(config.d_model, epsilon=config.norm_epsilon, dtype=config.dtype, rngs=rngs)


def parts(
    config: Config,
    placement: Placement,
    *,
    residual_init: Init | None = None,
    gated: bool = False,
    rms: bool = False,
    num_kv_heads: int | None = None,
) -> Parts:
    """The parts of a layer (Transformer, section 3).

    Args:
      config: a family's configuration.
      placement: where the norms are.
      residual_init: for the matrices whose products are added to the residual stream; None: as for
        the others.
      gated: whether the feed-forward part has a gate (GLU Variants, Shazeer, 2020); no part of
        such a layer has a bias.
      rms: whether norms take no mean (Zhang and Sennrich, 2019).
      num_kv_heads: heads of keys and values; None: as many as of queries.
    """
    init = config.init
    out = init if residual_init is None else residual_init
    of_mlp: dict[str, Any] = {
        "activation": config.activation,
        "inits": (init, out),
        "dtype": config.dtype,
    }
    return Parts(
        norm=lambda rngs: rms_norm(config, rngs) if rms else norm(config, rngs, bias=not gated),
        attention=lambda rngs: Attention(
            config.d_model,
            config.num_heads,
            d_kv=config.d_kv,
            inits=Inits(query=init, key=init, value=init, out=out),
            bias=not gated,
            scale=config.d_kv**-0.5,
            kernel=config.kernel,
            num_kv_heads=num_kv_heads,
            dtype=config.dtype,
            rngs=rngs,
        ),
        mlp=lambda rngs: (
            GatedMlp(config.d_model, config.d_ff, **of_mlp, rngs=rngs)
            if gated
            else Mlp(config.d_model, config.d_ff, bias=True, **of_mlp, rngs=rngs)
        ),
        dropouts=config.dropouts,
        placement=placement,
    )

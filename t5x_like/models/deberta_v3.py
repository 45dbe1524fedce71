"""DeBERTa v3: an ELECTRA of DeBERTas, with gradient-disentangled embedding sharing.

He, Gao and Chen (2023). Suffixes: B batch, L length, D d_model, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal, get_args

import jax
from flax import nnx

from t5x_like.core.abilities import (
    CountsFlops,
    GivesStates,
    GuessesMasked,
    MarksReplaced,
    ReplacesTokens,
    TrainsInTurn,
)
from t5x_like.layers.basics.depth import below
from t5x_like.layers.basics.dropout import subkeys
from t5x_like.layers.basics.modules import ZEROS, param
from t5x_like.layers.heads import replaced_tokens, tying
from t5x_like.layers.losses import accounting
from t5x_like.models import deberta, electra

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics

EmbeddingSharing = Literal["es", "nes", "gdes"]
_TOKENS = "encoder.embedding.tokens"
_SAMPLED = ("encoder_input_tokens", "encoder_original_tokens")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(deberta.Config):
    """Architecture of a discriminator and its generator; the defaults are base's.

    The token tables are shared in one of three ways (section 3): `es`, one table that both losses
    train; `nes`, two; `gdes`, the discriminator reads the generator's table, through which it
    sends no gradient, plus a difference of its own, which starts at 0.
    """

    generator_depth: float = 0.5  # times num_layers; all other sizes are the discriminator's
    embedding_sharing: EmbeddingSharing = "gdes"
    temperature: float = 1.0  # of sampling
    exclude_original: bool = False  # samples never equal the original token
    discriminator_weight: float = 10.0  # lambda of the published code; the generator's is 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embedding_sharing not in get_args(EmbeddingSharing):
            raise ValueError(
                "deberta_v3.Config.embedding_sharing must be es, nes or gdes, got "
                f"{self.embedding_sharing!r}"
            )
        for name in ("temperature", "generator_depth"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"deberta_v3.Config.{name} must be above 0, got {getattr(self, name)}"
                )

    @property
    def of_discriminator(self) -> deberta.Config:
        """The discriminator's, which predicts no tokens and so has no mask decoder."""
        fields = dataclasses.fields(deberta.Config)
        values = {field.name: getattr(self, field.name) for field in fields}
        return deberta.Config(**values | {"mask_decoder": False})

    @property
    def of_generator(self) -> deberta.Config:
        """The generator's: of the same width."""
        return dataclasses.replace(
            self.of_discriminator,
            num_layers=max(1, round(self.num_layers * self.generator_depth)),
            mask_decoder=self.mask_decoder,
        )

    @property
    def shared(self) -> tuple[str, ...]:
        """The parts that the discriminator alone stores."""
        return () if self.embedding_sharing == "nes" else (_TOKENS,)


class Discriminator(electra.Discriminator):
    """Tells tokens that were replaced from those that were not; its batches are ELECTRA's."""

    def __init__(self, config: deberta.Config, *, rngs: nnx.Rngs) -> None:
        self.encoder = deberta.Encoder(config, rngs=rngs)
        self.head = replaced_tokens.BesideFirstHead(
            config.d_model,
            init=config.init,
            activation=config.activation,
            epsilon=config.norm_epsilon,
            dtype=config.dtype,
            rngs=rngs,
        )
        self.config = config

    def logits(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """Above 0 where a token looks replaced: float32 [B, L]."""
        x_BLD = self.encoder.hidden(batch, key).last
        return self.head(x_BLD, batch.get("encoder_positions"))


class DebertaV3(electra.Electra):
    """Generator and discriminator, trained together (section 3).

    Batches, terms and metrics are ELECTRA's. Where no parameter has gradients of both terms (`gdes`
    and `nes`), a step has two turns, as in the published code: the generator's loss, from whose
    predictions the samples are drawn, and then the discriminator's, which reads the generator's
    table after its update. Each turn's gradient is clipped by itself.

    The table that is stored with the discriminator is the generator's; `difference`, [V, D], is
    what the discriminator's differs by. `whole_discriminator` has their sum.
    """

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.discriminator = Discriminator(config.of_discriminator, rngs=rngs)
        generator = deberta.Deberta(config.of_generator, rngs=rngs)
        self.generator = tying.without(generator, config.shared)
        self.difference = _difference(config, rngs) if config.embedding_sharing == "gdes" else None
        self.config = config

    @property
    def abilities(self) -> tuple[type, ...]:
        """ELECTRA's, and turns where each parameter has one."""
        apart = self.config.embedding_sharing != "es"
        known = (CountsFlops, GivesStates, GuessesMasked, MarksReplaced, ReplacesTokens)
        return (*known, TrainsInTurn) if apart else known

    @property
    def turns(self) -> tuple[int, ...]:
        """The generator's and the discriminator's."""
        return (0, 1)

    def loss_of_turn(
        self,
        turn: int,
        batch: Batch,
        key: jax.Array | None,
        carry: Carry,
        weights: dict[str, jax.Array],
    ) -> tuple[jax.Array, Metrics, Carry]:
        """The generator's loss, whose carry has its samples, or the discriminator's."""
        generator_key, sampling_key, discriminator_key = subkeys(key, 3)
        if turn == 0:
            terms, metrics, logits_BKV = self.generated(batch, generator_key)
            metrics |= self.totals(batch, terms, weights)
            sampled = self.replaced(batch, logits_BKV, sampling_key)
            carry = {name: sampled[name] for name in _SAMPLED}
        else:
            terms, metrics = self.marked({**batch, **carry}, discriminator_key)
            carry = ()
        scalar, losses = accounting.combine(terms, weights)
        return scalar, {**losses, **metrics}, carry

    def whole_discriminator(self) -> Discriminator:
        """The discriminator with its own table, as a separate model; do not store it beside this.

        No gradient passes to the generator's table.
        """
        if self.difference is None:
            return self.discriminator
        whole = tying.complete(self.discriminator, self.discriminator, ())
        table = whole.encoder.embedding.tokens.table
        summed = jax.lax.stop_gradient(table[...]) + self.difference[...]
        whole.encoder.embedding.tokens.table = table.replace(summed)
        return whole

    def whole_generator(self) -> deberta.Deberta:
        """The generator with what it shares, as a separate model; do not store it beside this."""
        return tying.complete(self.generator, self.discriminator, self.config.shared)


def _difference(config: Config, rngs: nnx.Rngs) -> nnx.Param:
    """What is added to the stored table of tokens, [V, D]; weight decay draws it to 0."""
    shape, axes = (config.vocab_size, config.d_model), ("vocab", "embed")
    difference = below(param(ZEROS, shape, axes=axes, multiplied=False, rngs=rngs))
    difference.set_metadata("added_to", f"discriminator.{_TOKENS}.table")
    return difference

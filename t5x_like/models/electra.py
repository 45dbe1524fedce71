"""ELECTRA: a discriminator that learns from the samples of a generator (Clark et al., 2020).

Suffixes: B batch, L length, K masked positions, D d_model, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from t5x_like.core.abilities import (
    LAST,
    CountsFlops,
    GivesStates,
    GuessesMasked,
    MarksReplaced,
    ReplacesTokens,
    States,
    Want,
    can,
)
from t5x_like.layers.basics.depth import above
from t5x_like.layers.basics.dropout import subkeys
from t5x_like.layers.basics.modules import Linear
from t5x_like.layers.families.body import WithEncoder
from t5x_like.layers.families.encoder_pretraining import Pretraining, texts
from t5x_like.layers.heads import replaced_tokens, tying
from t5x_like.layers.heads.copy_gate import copied_or_predicted
from t5x_like.layers.heads.outputs import output
from t5x_like.layers.losses import accounting
from t5x_like.layers.losses.accounting import Term
from t5x_like.layers.losses.cross_entropy import token_sums
from t5x_like.models import bert

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch, Carry, Metrics

Sharing = Literal["none", "tokens", "embeddings", "all"]
SHARED: dict[str, tuple[str, ...]] = {
    "none": (),
    "tokens": ("encoder.embedding.tokens",),
    "embeddings": ("encoder.embedding",),
    "all": ("encoder.embedding", "encoder.trunk"),
}
"""Parts of the discriminator that the generator uses; the norm belongs to the embeddings."""

_SEED = 0


class Encoder(bert.Encoder):
    """An ELECTRA without heads; it reads the batches of a BERT."""


class Generator(bert.Bert):
    """Predicts masked tokens: a BERT without pooler. It is also a `Model` by itself."""


class Discriminator(WithEncoder, Pretraining):
    """Tells tokens that were replaced from those that were not.

    It is also a `Model` by itself. Its batches hold what a BERT reads and int32
    `encoder_original_tokens` [B, L]. It is scored on all tokens, or by the float32
    `discriminator_loss_weights` [B, L] where a batch has them.
    """

    config: Any
    head: Any

    def __init__(self, config: bert.Config, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(config, rngs=rngs)
        self.head = replaced_tokens.ReplacedTokenHead(
            config.d_model,
            init=config.init,
            activation=config.activation,
            dtype=config.dtype,
            rngs=rngs,
        )
        self.config = config

    abilities = (CountsFlops, GivesStates, MarksReplaced)

    def marks(self, batch: Batch) -> jax.Array:
        """Its logits."""
        return self.logits(batch)

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The denominator of `discriminator`: scored tokens."""
        return {"discriminator": scored_positions(batch).sum()}

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """`discriminator`: cross entropy of whether a token is the original one.

        Metrics: `discriminator_accuracy` by tokens, and the precision and recall of finding
        replaced ones, `replaced_precision` and `replaced_recall`. Where `text_weights` [B, L] tell
        text from special tokens (never replaced), these are measured over scored text alone:
        `discriminator_text_loss`, `replaced_share` and, in evaluation, `replaced_auc`.
        """
        weights_BL, logits_BL = scored_positions(batch), self.logits(batch, key)
        is_replaced_BL = batch["encoder_input_tokens"] != batch["encoder_original_tokens"]
        sums = replaced_tokens.detection_sums(logits_BL, is_replaced_BL, weights_BL=weights_BL)
        weight = weights_BL.sum()
        metrics = {
            "discriminator_accuracy": (sums.correct, weight),
            "replaced_precision": (sums.found, sums.suspected),
            "replaced_recall": (sums.found, sums.replaced),
        }
        if "text_weights" in batch:
            text_BL = weights_BL * batch["text_weights"]
            text = replaced_tokens.detection_sums(logits_BL, is_replaced_BL, weights_BL=text_BL)
            metrics["discriminator_text_loss"] = (text.cross_entropy, text_BL.sum())
            metrics["replaced_share"] = (text.replaced, text_BL.sum())
            if key is None:
                metrics["replaced_auc"] = replaced_tokens.concordant(
                    logits_BL, is_replaced_BL, weights_BL=text_BL
                )
        return {"discriminator": Term(sums.cross_entropy, weight)}, metrics, carry

    def logits(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """Above 0 where a token looks replaced: float32 [B, L]."""
        return self.head(self.encoder.hidden(batch, key).last)

    def flops(self, batch: Batch) -> jax.Array:
        counts_BL = texts(batch)
        products = self.encoder.products(counts_BL)
        products += accounting.count(counts_BL) * accounting.matrix_size(self.head)
        return accounting.step_flops(products)


class AllTokens(bert.Bert):
    """Predicts every original token, or copies what it reads: All-Tokens MLM (section 3.5).

    It replaces a discriminator. The gate is a product with one vector.
    """

    def __init__(self, config: bert.Config, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, rngs=rngs)
        shape, axes = (config.d_model, 1), ("embed", None)
        gate = Linear(shape, axes, init=config.init, dtype=config.dtype, rngs=rngs)
        self.gate = above(output(gate))

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """The denominator of `mlm`: scored tokens."""
        return {"mlm": scored_positions(batch).sum()}

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """`mlm`: -log p of the original tokens. Metrics: `mlm_accuracy`."""
        weights_BL = scored_positions(batch)
        x_BLD = self.encoder.hidden(batch, key).last
        nll_BL, correct_BL = copied_or_predicted(
            self.mlm(x_BLD, self.encoder.tokens),
            gate_BL=self.gate(x_BLD)[..., 0].astype(jnp.float32),
            read_BL=batch["encoder_input_tokens"],
            targets_BL=batch["encoder_original_tokens"],
        )
        weight = weights_BL.sum()
        accuracy = ((correct_BL * weights_BL).sum(), weight)
        terms = {"mlm": Term((nll_BL * weights_BL).sum(), weight)}
        return terms, {"mlm_accuracy": accuracy}, carry

    def flops(self, batch: Batch) -> jax.Array:
        weights_BL = scored_positions(batch)
        gate = accounting.step_flops(accounting.count(weights_BL) * float(self.gate.kernel.size))
        return super().flops({**batch, "masked_loss_weights": weights_BL}) + gate


def scored_positions(batch: Batch) -> jax.Array:
    """Weights of the tokens that the discriminator is scored on, float32 [B, L]."""
    weights_BL = batch.get("discriminator_loss_weights")
    if weights_BL is None:
        weights_BL = batch["encoder_attention_mask"] > 0
    return weights_BL.astype(jnp.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(bert.Config):
    """Architecture of a discriminator and its generator; the defaults are base's.

    The paper's ablations replace the `discriminator`, at a weight of 1: `bert.Bert`, which predicts
    the masked tokens from a text with samples in it (Replace MLM), or `AllTokens`.
    """

    sentence_head: bool = False
    generator_width: float = 1 / 3  # times d_model, d_ff and num_heads
    generator_depth: float = 1.0  # times num_layers
    uniform_generator: bool = False  # all tokens equally likely; without parameters
    sharing: Sharing = "embeddings"  # none, tokens, embeddings, or all (also the layers)
    temperature: float = 1.0  # of sampling
    exclude_original: bool = False  # samples never equal the original token
    discriminator: Callable[..., Any] = Discriminator
    discriminator_weight: float = 50.0  # the paper's lambda; the generator's is 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sharing not in SHARED:
            raise ValueError(
                f"electra.Config.sharing must be one of {', '.join(SHARED)}, got {self.sharing!r}"
            )
        if self.sharing == "all" and (self.generator_width, self.generator_depth) != (1, 1):
            raise ValueError(
                'electra.Config.sharing="all" needs generator_width=1 and generator_depth=1, got '
                f"{self.generator_width} and {self.generator_depth}"
            )
        if not self.temperature > 0:
            raise ValueError(f"electra.Config.temperature must be above 0, got {self.temperature}")

    @property
    def of_discriminator(self) -> bert.Config:
        fields = dataclasses.fields(bert.Config)
        return bert.Config(**{field.name: getattr(self, field.name) for field in fields})

    @property
    def of_generator(self) -> bert.Config:
        """The generator's; where it shares embeddings, they are as wide as the discriminator's."""
        return dataclasses.replace(
            self.of_discriminator,
            d_model=round(self.d_model * self.generator_width),
            d_ff=round(self.d_ff * self.generator_width),
            num_heads=max(1, round(self.num_heads * self.generator_width)),
            num_layers=max(1, round(self.num_layers * self.generator_depth)),
            d_embedding=None if self.sharing == "none" else self.width,
            sentence_head=False,
        )


def _own_generator(config: Config, rngs: nnx.Rngs) -> Generator:
    return tying.without(Generator(config.of_generator, rngs=rngs), SHARED[config.sharing])


class Electra(Pretraining):
    """Generator and discriminator, trained together (ELECTRA, section 2).

    A batch holds what a BERT reads, masked for the generator, and `discriminator_loss_weights`
    where the discriminator is not scored on all tokens. With `key` None, samples depend on a fixed
    key and the row's tokens, and there is no dropout. Where two masked positions are the same, the
    later sample counts; the published code takes the mean of the ids, which is another word.
    """

    config: Any
    generator: Any

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.discriminator = config.discriminator(config.of_discriminator, rngs=rngs)
        self.generator = None if config.uniform_generator else _own_generator(config, rngs)
        self.config = config

    @property
    def abilities(self) -> tuple[type, ...]:
        """To guess where it has a generator, to mark where its discriminator does, and the rest."""
        marks = can(self.discriminator, MarksReplaced)
        return (
            CountsFlops,
            GivesStates,
            *([] if self.generator is None else [GuessesMasked]),
            *([MarksReplaced, ReplacesTokens] if marks else []),
        )

    @property
    def encoder(self) -> bert.Encoder:
        """The discriminator's encoder, which is kept after pretraining."""
        return self.whole_discriminator().encoder

    def hidden(self, batch: Batch, key: jax.Array | None = None, *, want: Want = LAST) -> States:
        """The discriminator's states of the batch's tokens, as `bert.Encoder` gives them."""
        return self.encoder.hidden(batch, key, want=want)

    @property
    def max_tokens(self) -> int | None:
        """The discriminator's."""
        return self.discriminator.max_tokens

    def states(self, batch: Batch, *, want: Want = LAST) -> States:
        """Those of `hidden`, without dropout."""
        return self.hidden(batch, want=want)

    def guesses(self, batch: Batch) -> jax.Array:
        """The generator's `predictions`."""
        return self.predictions(batch)

    def marks(self, batch: Batch) -> jax.Array:
        """The discriminator's logits."""
        return self.whole_discriminator().marks(batch)

    def replaced_by_itself(self, batch: Batch) -> dict[str, jax.Array]:
        """The batch with the generator's samples at its masked positions."""
        return self.replaced(batch, self.predictions(batch))

    def whole_discriminator(self) -> Any:
        """The discriminator with what it has from the generator; here it has all by itself."""
        return self.discriminator

    def whole_generator(self) -> Any:
        """The generator with what it shares, as a separate model. None where it is uniform.

        Do not store it beside this model: what they share would be stored twice.
        """
        if self.generator is None:
            return None
        return tying.complete(self.generator, self.discriminator, SHARED[self.config.sharing])

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Denominators: `generator` masked tokens, and the discriminator's."""
        masked = {"generator": batch["masked_loss_weights"].astype(jnp.float32).sum()}
        return ({} if self.generator is None else masked) | self.discriminator.weights(batch)

    def terms(
        self, batch: Batch, key: jax.Array | None, carry: Carry
    ) -> tuple[dict[str, Term], Metrics, Carry]:
        """`generator`, the cross entropy of masked tokens, and the discriminator's term.

        Metrics: `generator_accuracy`, `generator_pseudo_perplexity`, and the discriminator's.
        """
        generator_key, sampling_key, discriminator_key = subkeys(key, 3)
        terms, metrics, logits_BKV = self.generated(batch, generator_key)
        sampled = self.replaced(batch, logits_BKV, sampling_key)
        more_terms, more = self.marked(sampled, discriminator_key)
        return terms | more_terms, metrics | more, carry

    def generated(
        self, batch: Batch, key: jax.Array | None
    ) -> tuple[dict[str, Term], Metrics, jax.Array]:
        """The generator's term, if there is one, its metrics, and its `predictions`."""
        logits_BKV = self.predictions(batch, key)
        if self.generator is None:
            return {}, {}, logits_BKV
        weights_BK = batch["masked_loss_weights"].astype(jnp.float32)
        sums = token_sums(logits_BKV, batch["masked_targets"], weights_BL=weights_BK)
        masked = weights_BK.sum()
        metrics: Metrics = {
            "generator_accuracy": (sums.correct, masked),
            "generator_pseudo_perplexity": (sums.nll, masked),
        }
        return {"generator": Term(sums.cross_entropy, masked)}, metrics, logits_BKV

    def marked(self, sampled: Batch, key: jax.Array | None) -> tuple[dict[str, Term], Metrics]:
        """The discriminator's term and metrics, for a batch with samples (`replaced`)."""
        terms, metrics, _ = self.whole_discriminator().terms(sampled, key, ())
        weight = self.config.discriminator_weight
        return {name: term._replace(coefficient=weight) for name, term in terms.items()}, metrics

    def predictions(self, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """The generator's logits at the masked positions, float32 [B, K, V]."""
        positions_BK = batch["masked_positions"]
        generator = self.whole_generator()
        if generator is None:
            return jnp.zeros((*positions_BK.shape, self.config.vocab_size))
        return generator.mlm(generator.masked_states(batch, key), generator.encoder.tokens)

    def replaced(
        self, batch: Batch, logits_BKV: jax.Array, key: jax.Array | None = None
    ) -> dict[str, jax.Array]:
        """The batch as the discriminator reads it: samples in the unmasked text."""
        tokens_BL, targets_BK = batch["encoder_input_tokens"], batch["masked_targets"]
        key = jax.random.key(_SEED) if key is None else key
        samples_BK = replaced_tokens.sample_tokens(
            logits_BKV,
            keys_B=replaced_tokens.row_keys(key, tokens_BL),
            temperature=self.config.temperature,
            excluded_BK=targets_BK if self.config.exclude_original else None,
        )
        put = functools.partial(
            replaced_tokens.put,
            tokens_BL,
            positions_BK=batch["masked_positions"],
            weights_BK=batch["masked_loss_weights"],
        )
        return {
            **batch,
            "encoder_input_tokens": put(samples_BK),
            "encoder_original_tokens": put(targets_BK),
        }

    def flops(self, batch: Batch) -> jax.Array:
        generator = self.whole_generator()
        generated = jnp.float32(0) if generator is None else generator.flops(batch)
        return generated + self.discriminator.flops(batch)

"""The protocol between models and the training loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import jax

    Batch = Mapping[str, jax.Array]
    Metrics = dict[str, tuple[jax.Array, jax.Array]]
    """{name: (sum, weight)}; both add up over batches, and then make a `metric_value`."""

Carry = Any
"""A pytree the training loop keeps for the model and never looks into; `()` when stateless."""


def metric_value(name: str, sums: Any, weights: Any) -> float:
    """The value of a metric, from the totals of its sums and of its weights.

    The value is sum / weight. In a vector, such as a loss with several terms, the quotients add up.
    A metric whose name ends in "perplexity" has sums of -log p; its value is exp of their mean.

    Returns:
      nan where all weights are 0.
    """
    sums, weights = np.atleast_1d(sums), np.atleast_1d(weights)
    weighs = weights != 0
    if not weighs.any():
        return float("nan")
    value = float((sums[weighs] / weights[weighs]).sum())
    if not name.endswith("perplexity"):
        return value
    with np.errstate(over="ignore"):
        return float(np.exp(value))


class ModelConfig(Protocol):
    """The fields of every model configuration."""

    @property
    def vocab_size(self) -> int:
        """Rows of the token table: at least as many as the vocabulary has ids."""


class Model(Protocol):
    """A model that can be trained. Loss terms have their own denominators over the global batch.

    Attributes:
      config: what it was made from.
      padding: the id that it treats as padding where a batch has no mask; None where it needs none.
    """

    @property
    def config(self) -> ModelConfig: ...

    @property
    def padding(self) -> int | None: ...

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Each loss term's denominator (scalar, float32), from the data alone."""

    def initial_carry(self, batch_size: int) -> Carry: ...

    def loss(
        self,
        batch: Batch,
        key: jax.Array | None,
        carry: Carry,
        weights: Mapping[str, jax.Array],
    ) -> tuple[jax.Array, Metrics, Carry]:
        """Sum over terms of coefficient * sum / weight; metrics; the next carry.

        `key` None means deterministic (no dropout). `weights` comes from the whole global batch,
        of which `batch` may be one microbatch, so that results of microbatches add up.
        """


class DecodingCache(Protocol):
    """The state that a model keeps between the positions that it writes; a pytree."""

    def repeat(self, times: int) -> Any:
        """Each row `times` times in a row, for several answers to a text: B * times rows."""

    def reorder(self, rows_B: jax.Array) -> Any:
        """The cache where row b has written what `rows_B[b]` had; both answer the same text."""


class Decodable(Protocol):
    """A model that writes token by token; a pytree, as every module is."""

    def prefill(self, batch: Batch, *, max_length: int) -> Any:
        """A `DecodingCache` of `max_length` positions that has read a text.

        It has also read all but the last of `decoder_input_tokens`, int32 [B, L], which are the
        first tokens of the answers or, in a model without an encoder, the text. `decode_step`
        continues with the last one, at position L - 1.
        """

    def decode_step(
        self, cache: Any, tokens_B: jax.Array, position: jax.Array
    ) -> tuple[jax.Array, Any]:
        """Float32 [B, V] logits of the tokens after `tokens_B`, int32 [B], and the next cache."""

"""NeoBERT (Le Breton et al., 2025): deeper than a BERT of its width, and of EuroBERT's parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax

from t5x_like.layers.basics.modules import Init
from t5x_like.models import eurobert


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(eurobert.Config):
    """Architecture of a NeoBERT; the defaults are those of the one that is published.

    Only the scores of tokens have a bias. Parameters are drawn from a uniform distribution, whose
    standard deviation is `init_std`.
    """

    vocab_size: int = 30522
    d_ff: int = 2048  # of each half of the gated layer
    num_layers: int = 28
    max_positions: int = 4096  # tokens of a row; no table has them
    theta: float = 10_000.0  # of rotary positions
    init_std: float = 0.02 * 3**-0.5  # from -0.02 to 0.02
    pooling: eurobert.Pooling = "bos"  # what heads of tasks read

    scores_have_bias: ClassVar[bool] = True

    @property
    def init_range(self) -> float:
        """The largest parameter that is drawn."""
        return float(self.init_std * 3**0.5)

    @property
    def init(self) -> Init:
        end = self.init_range

        def uniform(
            key: jax.Array, shape: Sequence[int], dtype: Any = "float32", out_sharding: Any = None
        ) -> jax.Array:
            return jax.random.uniform(key, tuple(shape), dtype, -end, end)

        return uniform


class NeoBert(eurobert.EuroBert):
    """A NeoBERT with the matrix and the biases that score masked tokens."""

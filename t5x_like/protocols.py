"""What the parts of t5x_like promise each other: models, objectives, vocabularies, batches.

Importable by every package: nothing but NumPy is imported at run time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    import jax

    Batch = Mapping[str, jax.Array]
    Metrics = dict[str, tuple[jax.Array, jax.Array]]

Carry = Any
"""A pytree the training loop keeps for the model and never looks into; `()` when stateless."""


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """What an objective may know of a vocabulary: its size and its special ids.

    `vocab_size` counts the ids in use, extra ids included (32,100 for T5), not the rows of an
    embedding table. `word_starts` is bool [vocab_size]: the pieces that begin a word.
    """

    vocab_size: int
    pad: int = 0
    eos: int | None = 1
    unk: int | None = 2
    bos: int | None = None
    cls: int | None = None
    sep: int | None = None
    mask: int | None = None
    word_starts: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)

    def sentinel(self, k: int) -> int:
        """The id of sentinel k: they count down from the top id (T5, section 3.1.4)."""
        return self.vocab_size - 1 - k

    def to_json(self) -> dict[str, int | None]:
        """The scalar fields; `word_starts` is stored as an array by whoever keeps it."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "word_starts"
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, int | None]) -> TokenIds:
        return cls(**fields)  # type: ignore[arg-type]


class Objective(Protocol):
    """A frozen object around a pure NumPy function from a sample of tokens to features."""

    def geometry(self, lengths: Mapping[str, int]) -> Any:
        """Which tokens make a sample, for these feature lengths (an `objectives.geometry` object).

        Raises:
          ValueError: the feature lengths do not fit the objective; says which would.
        """

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Features without end-of-sequence ids. Never drops a sample."""


@runtime_checkable
class Vocabulary(Protocol):
    """Text to ids and back. Pickles, so that worker processes can have it."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def token_ids(self) -> TokenIds: ...

    @property
    def fingerprint(self) -> str:
        """Hex digest: equal exactly where every text gets equal ids."""

    def encode(self, text: str) -> list[int]: ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...

    def encode_with_sentinels(self, text: str) -> list[int]:
        """As `encode`, with each written `<extra_id_n>` becoming its single id."""

    def decode(self, ids: Sequence[int]) -> str: ...

    def to_json(self) -> dict[str, Any]: ...

    def save(self, directory: Path) -> None:
        """Writes `vocabulary.json` and whatever file it needs, for `vocabularies.loading.load`."""


class Model(Protocol):
    """A model is its loss. Terms carry their own denominators over the global batch."""

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

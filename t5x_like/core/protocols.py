"""What the parts of t5x_like promise each other: models, objectives, vocabularies, batches.

Importable by every package: nothing but NumPy is imported at run time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

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


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """What an objective may know about a vocabulary: its size and its special ids.

    `vocab_size` counts the ids in use, extra ids included (32,100 for T5), not the rows of an
    embedding table. `sentinels` ids stand for spans, counted down from `top_sentinel` (None: the
    highest id); None: there are none. `named` are further special tokens by their text, such as
    `<eod>` or `[R]`.
    `word_starts` and `full_stops` are bool [vocab_size]: the pieces that begin a word (of a script
    without spaces, every piece), and those that end a sentence. `counts` is int64 [vocab_size]:
    how often each id occurs in the training text of a corpus; a vocabulary by itself has none.
    """

    vocab_size: int
    pad: int = 0
    eos: int | None = 1
    unk: int | None = 2
    bos: int | None = None
    cls: int | None = None
    sep: int | None = None
    mask: int | None = None
    sentinels: int | None = None
    top_sentinel: int | None = None
    named: Mapping[str, int] = dataclasses.field(default_factory=dict)
    word_starts: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)
    full_stops: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)
    counts: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)

    def sentinel(self, k: int) -> int:
        """The id of sentinel k: they count down (T5, section 3.1.4)."""
        top = self.vocab_size - 1 if self.top_sentinel is None else self.top_sentinel
        return top - k

    @property
    def special(self) -> tuple[int, ...]:
        """Every special id, ascending: none of them is a piece of text."""
        single = (self.pad, self.eos, self.unk, self.bos, self.cls, self.sep, self.mask)
        return tuple(sorted({i for i in (*single, *self.named.values()) if i is not None}))

    def given(self, name: str) -> int:
        """The special id in a field that an objective `needs`.

        Raises:
          ValueError: this vocabulary lacks it.
        """
        found: int | None = getattr(self, name)
        if found is None:
            raise ValueError(f"this vocabulary has no {name}")
        return found

    def missing(self, needs: Sequence[str]) -> list[str]:
        """The `needs` (names of fields, or of `named` tokens) that this vocabulary lacks."""
        return [
            name for name in needs if getattr(self, name, None) is None and name not in self.named
        ]

    def to_json(self) -> dict[str, Any]:
        """All fields but the arrays, which the caller stores."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in self.ARRAYS
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> TokenIds:
        return cls(**fields)

    ARRAYS: ClassVar = ("word_starts", "full_stops", "counts")


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """One feature of an example.

    Attributes:
      length: the most values; None where the feature is a single number (an array of no axes).
      dtype: "int32" or "float32".
    """

    length: int | None
    dtype: str = "int32"


PLAIN_TEXT = ("targets",)
"""The columns of plain text."""
PAIRS = ("inputs", "targets")
"""Those of pairs of texts."""


class Objective(Protocol):
    """A frozen object around a pure NumPy function from a sample of tokens to features.

    Attributes:
      kind: which models read its examples: "encoder_decoder", "encoder" or "decoder".
      reads: the columns of a text that it makes examples of, such as `PLAIN_TEXT`.
      answers: what a model is asked for each example, such as "text"; None where it is scored only.
      measures: the names of the metrics of these answers, in `evaluation.task_metrics.METRICS`.
      needs: what the vocabulary must have: names of `TokenIds` fields or of its named tokens.
      steps: names of `data.late_steps.STEPS` that run on its features.
      static: whether a sample gets the same noise in every epoch.
    """

    @property
    def kind(self) -> str: ...

    @property
    def reads(self) -> tuple[str, ...]: ...

    @property
    def answers(self) -> str | None: ...

    @property
    def measures(self) -> tuple[str, ...]: ...

    @property
    def needs(self) -> tuple[str, ...]: ...

    @property
    def steps(self) -> tuple[str, ...]: ...

    @property
    def static(self) -> bool: ...

    def lengths(self, tokens: int) -> dict[str, int]:
        """Feature lengths that go together for a model that reads `tokens` tokens a row."""

    def geometry(self, lengths: Mapping[str, int]) -> Any:
        """Which tokens make a sample, for these feature lengths: see `objectives.parts.geometry`.

        Raises:
          ValueError: the feature lengths do not fit the objective; says which would.
        """

    def features(self, lengths: Mapping[str, int]) -> Mapping[str, FeatureSpec]:
        """Every feature that an example may hold after `steps`, end of sequence included."""

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """The features, before `steps` run. Never drops a sample."""


@runtime_checkable
class Vocabulary(Protocol):
    """Turns text into ids and back. It pickles, so that worker processes can receive it.

    Where an attribute `releases_lock` is true, threads tokenise with it; otherwise processes do.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def token_ids(self) -> TokenIds: ...

    @property
    def fingerprint(self) -> str:
        """A hex digest, equal exactly for vocabularies that give every text equal ids."""

    def encode(self, text: str) -> list[int]: ...

    def encode_batch(self, texts: Sequence[str]) -> Sequence[Sequence[int] | np.ndarray]:
        """Ids of each text, in this thread; int32 arrays where they are faster than lists."""

    def encode_with_sentinels(self, text: str) -> list[int]:
        """Like `encode`, but each written `<extra_id_n>` becomes its single id."""

    def decode(self, ids: Sequence[int]) -> str: ...

    def piece(self, i: int) -> str:
        """Token `i` as people read it: its text, or a special token's name; "▁" is a space.

        Raises:
          IndexError: there is no id `i`.
        """

    def to_json(self) -> dict[str, Any]:
        """What `vocabulary.json` holds: `class`, `fingerprint` and the fields of the kind."""

    def save(self, directory: Path) -> None:
        """Writes `vocabulary.json` and the files it needs, for `vocabularies.loading.load`."""


class ModelConfig(Protocol):
    """What every model configuration has."""

    @property
    def vocab_size(self) -> int:
        """Rows of the token table: at least as many as the vocabulary has ids."""


@runtime_checkable
class GoesOn(Protocol):
    """A vocabulary that changes how a text begins, as SentencePiece puts a space before it."""

    def encode_following(self, texts: Sequence[str]) -> Sequence[Sequence[int] | np.ndarray]:
        """Like `encode_batch`, for texts that each continue a line: puts nothing before them."""


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
    """What a model keeps between the positions that it writes; a pytree."""

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


class FeatureConverter(Protocol):
    """Turns the examples of a task into the rows that a model reads.

    Attributes:
      kind: which models read the rows, as in `Objective`.
      task_features: names of features that examples must have.
      pack: whether a row holds several examples.
    """

    @property
    def kind(self) -> str: ...

    @property
    def task_features(self) -> tuple[str, ...]: ...

    @property
    def pack(self) -> bool: ...

    def convert(
        self,
        examples: Sequence[Mapping[str, np.ndarray]],
        *,
        features: Mapping[str, FeatureSpec],
        ids: TokenIds,
    ) -> dict[str, np.ndarray]:
        """Makes one row of the examples that share it; of none, a row of padding.

        Raises:
          ValueError: a feature is missing, or the examples do not fit the row.
        """


Kept = Mapping[str, Any]
"""{name: array}, nested or not: what a completer keeps from step to step. Shapes do not change."""


class Completing(Protocol):
    """A completer at work. What it keeps is in every checkpoint, so that a run resumes exactly."""

    def start(self, params: Any) -> Kept:
        """What it keeps before the first step, from the parameters of a new run."""

    def complete(self, batch: Batch, *, step: int, kept: Kept) -> Batch:
        """The batch of the step that follows `step` steps, or of an evaluation after them."""

    def after(self, step: int, params: Any, kept: Kept) -> Kept:
        """What it keeps after a step, whose parameters it may read until it returns.

        It is called in all processes, and depends on its arguments alone.
        """


class BatchCompleter(Protocol):
    """Adds to each global batch what a model learns from besides text, such as a teacher."""

    def check(self, vocabulary: Vocabulary) -> None:
        """Raises ValueError where it cannot be used with this vocabulary; reads nothing large."""

    def check_model(self, model: Any) -> None:
        """Raises ValueError where a model, with abstract parameters, does not use what it adds."""

    def added(self, row: Mapping[str, Any], model: Any) -> dict[str, jax.ShapeDtypeStruct]:
        """What it adds to a row for a model, by shape and dtype; reads nothing."""

    def identity(self) -> Any:
        """JSON that tells a resumed run whether it is still the same one."""

    def open(self, layout: Any) -> Completing:
        """Completes batches that are split over the mesh as `layout` (a `Layout`) says."""


def lacking(one: Any, protocol: type) -> list[str]:
    """The members of a protocol, and of those that it extends, that `one` lacks."""
    extended = [kind for kind in protocol.__mro__ if kind not in (Protocol, Generic, object)]
    names = dict.fromkeys(name for kind in extended for name in vars(kind) if name[0] != "_")
    return [name for name in names if not hasattr(one, name)]

"""The protocols of texts, vocabularies, objectives and rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path


@dataclasses.dataclass(frozen=True)
class TokenIds:
    """The part of a vocabulary that an objective may know: its size and its special ids.

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
        special_id: int | None = getattr(self, name)
        if special_id is None:
            raise ValueError(f"this vocabulary has no {name}")
        return special_id

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
      length: the most values; None where the feature is a single value, such as a number.
      dtype: "int32" or "float32".
      item: the shape of a value: () for tokens and numbers, [50] for the characters of words.
    """

    length: int | None
    dtype: str = "int32"
    item: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the padded feature."""
        return self.item if self.length is None else (self.length, *self.item)


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a text, and how a cache keeps its values.

    Attributes:
      name: the name of the column, and of the feature that records have.
      holds: "text", whose tokens are kept; "words", a text of a word a line, of which each is
        encoded as within a text (`data.cache.words`); "label", the name of a class (a text
        or a whole number), whose place among all names is kept, int32 [1]; "tags", a name a line
        for each word of the row's only words, whose place among all names is kept at the word's
        first token, and -1 at its further ones, int32 [tokens]; "labels", none or many names, one
        a line, whose places are kept, int32 [n]; "passage", a text in which answers are, kept as
        tokens; "spans", the answers in the row's only passage, as JSON [[place of the first
        character, text], ...], kept as int32 [answers, 4]: the first and the last token (-1 where
        the vocabulary leaves nothing of an answer), the first character and the one after the
        last; "characters", the row's only passage, whose code points are kept, int32 [n];
        "numbers", an array, float32.
      shape: the shape of numbers; None for an axis of any length, which only the first may have.
      names: the names of the classes of a label in their order, where these are known before the
        text is read; they are not kept.
      as_bio: whether tags of entities are read as BIO, whatever they are (`core.tag_schemes`).
      markers: the texts that stand before and after each span in a passage, which does not keep
        them; None where spans have a cell of their own.
    """

    name: str
    holds: Literal[
        "text",
        "words",
        "label",
        "labels",
        "tags",
        "passage",
        "spans",
        "characters",
        "numbers",
    ] = "text"
    shape: tuple[int | None, ...] = ()
    names: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    as_bio: bool = dataclasses.field(default=False, compare=False)
    markers: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        rest = self.shape[1:] if None in self.shape[:1] else self.shape
        if self.holds != "numbers" and self.shape:
            raise ValueError(f"column {self.name!r} holds a {self.holds}, which has no shape")
        if not all(isinstance(size, int) and size > 0 for size in rest):
            raise ValueError(
                f"column {self.name!r} has the shape {self.shape}: sizes are whole numbers above "
                "0; the first may be None"
            )

    @property
    def has_names(self) -> bool:
        """Whether its values are names of classes, whose places are kept."""
        return self.holds in ("label", "labels", "tags")

    def parts(self, value: str) -> list[str]:
        """The words, tags or labels in a value of this column; else the value itself."""
        if self.holds not in ("words", "tags", "labels"):
            return [value]
        return value.split("\n") if value else []


PLAIN_TEXT = (Column("targets"),)
"""The columns of plain text."""
PAIRS = (Column("inputs"), Column("targets"))
"""Those of pairs of texts."""
WEIGHT = Column("weight", "numbers")
"""The column of how much a labelled row counts in the loss."""


def names(columns: Iterable[Column]) -> tuple[str, ...]:
    """The names of columns, in their order."""
    return tuple(column.name for column in columns)


def text_columns(columns: Iterable[Column]) -> tuple[str, ...]:
    """The names of the columns that hold text or words; of the first, rows share a split.

    A passage comes first: it has many questions, which are not to be divided between the splits.
    """
    texts = [column for column in columns if column.holds in ("text", "words", "passage")]
    return names(sorted(texts, key=lambda column: column.holds != "passage"))


class Objective(Protocol):
    """A frozen object around a pure NumPy function from a sample of tokens to features.

    Attributes:
      kind: which models read its examples: "encoder_decoder", "encoder" or "decoder".
      reads: the columns of a text that it makes examples of, such as `PLAIN_TEXT`.
      answers: what a model is asked for each example, such as "text"; None where it is scored only.
      measures: the names of the metrics of these answers, in `evaluation.task_metrics.METRICS`.
      needs: what the vocabulary must have: names of `TokenIds` fields or of its named tokens.
      steps: names of `data.rows.late_steps.STEPS` that run on its features.
      static: whether a sample gets the same noise in every epoch.
    """

    @property
    def kind(self) -> str: ...

    @property
    def reads(self) -> tuple[Column, ...]: ...

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
class SeveralTargets(Protocol):
    """An objective that says whether held-out rows with the same inputs are one text.

    The targets of all these rows are right then, and its metrics count the text once.
    """

    @property
    def several_targets(self) -> bool: ...


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
        """The content of `vocabulary.json`: `class`, `fingerprint` and the fields of the kind."""

    def save(self, directory: Path) -> None:
        """Writes `vocabulary.json` and the files it needs, for `vocabularies.loading.load`."""


@runtime_checkable
class GoesOn(Protocol):
    """A vocabulary that changes how a text begins, as SentencePiece puts a space before it."""

    def encode_following(self, texts: Sequence[str]) -> Sequence[Sequence[int] | np.ndarray]:
        """Like `encode_batch`, for texts that each continue a line: puts nothing before them."""


@runtime_checkable
class Locates(Protocol):
    """A vocabulary that knows where in a text its tokens are."""

    def locate(self, text: str) -> tuple[Sequence[int], np.ndarray]:
        """The ids that `encode` gives, and int32 [n, 2]: the first character, and the one after.

        The white space around a token does not belong to it. Both are equal where nothing is left.
        """


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

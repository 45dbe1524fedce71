"""Geometries: which tokens of a corpus make one sample.

A corpus is a stream of tokens, cut into documents, and these into segments (sentences or lines).
Where `separators` is set, the stream has a separator id after each document, which offsets count.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

_LONGEST = sys.maxsize
"""More tokens than any text has."""
Rows = np.ndarray | list[tuple[int, ...]]
"""Some rows of a plan: int64 [n, columns], or as tuples."""


@dataclasses.dataclass(frozen=True)
class ConcatenateAndSplit:
    """All documents end to end, cut every `stride` tokens; samples {"targets": int32 [n]}.

    Attributes:
      length: tokens of a sample; samples at the end of the corpus may be shorter.
      stride: tokens from the start of a sample to the next, at most `length`; None for `length`.
        Samples overlap where it is less.
      separators: whether the stream has separators between documents.
      constants: names and values of numbers that every sample also holds.
    """

    length: int
    stride: int | None = None
    separators: bool = False
    constants: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.length < 1 or (self.stride is not None and not 1 <= self.stride <= self.length):
            raise ValueError(
                f"a sample needs at least one token and a stride within it, got length "
                f"{self.length} and stride {self.stride}"
            )


@dataclasses.dataclass(frozen=True)
class SplitDocuments:
    """Single documents, each cut every `length` tokens; samples {"targets": int32 [n]}."""

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"a sample needs at least one token, got length {self.length}")


@dataclasses.dataclass(frozen=True)
class Duplicated:
    """The n samples of a geometry, `times` times: sample i of n * times is its sample i % n.

    Each copy has its own index and therefore its own noise, even where noise is static.
    """

    geometry: ConcatenateAndSplit | SplitDocuments
    times: int

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"samples are there at least once, got times={self.times}")


@dataclasses.dataclass(frozen=True)
class PerRecord:
    """One sample for each cached record.

    Attributes:
      unchanged: whether an example has the tokens of its record, so that rows can be packed.
      room: {feature: the most tokens of it}; a longer one loses its end.
      pair: two features whose tokens share `pair_room`: the longer loses its end token by token,
        and of two that are as long the second.
      pair_room: the most tokens of both.
      groups: features of which an example has the tokens of each group in a row of `pair_room`
        tokens, which the objective cuts.
      constants: names and values of numbers that every sample also holds.
      specials: the special tokens of a row, beside those of its texts; None where a row has other
        tokens than the texts.
    """

    unchanged: bool = False
    room: Mapping[str, int] = dataclasses.field(default_factory=dict)
    pair: tuple[str, str] | None = None
    pair_room: int = 0
    groups: tuple[tuple[str, ...], ...] = ()
    constants: tuple[tuple[str, int], ...] = ()
    specials: int | None = None

    @property
    def any_length(self) -> bool:
        """Whether rows may be as long as their tokens."""
        return self.specials is not None

    def row_tokens(self, offsets: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """int [records]: the tokens of each record's row, or of its longest; None if unknown.

        Args:
          offsets: int [records + 1] for each feature, the number of tokens before each record.
        """
        return np.maximum.reduce(self._sizes(offsets)) if self.any_length else None

    def packed_tokens(self, offsets: Mapping[str, np.ndarray]) -> np.ndarray:
        """int [records]: the tokens of each record in a packed row, with those of all its groups.

        A group whose last feature is empty has none, as an alternative that is not one.
        """
        sizes = self._sizes(offsets)
        if not self.groups:
            return np.maximum.reduce(sizes)
        there = [np.diff(offsets[group[-1]]) > 0 for group in self.groups]
        return np.sum([size * here for size, here in zip(sizes, there, strict=True)], axis=0)

    def _sizes(self, offsets: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The tokens of the row of each group, int [records]."""
        assert self.specials is not None
        groups = self.groups or ([self.pair] if self.pair else [(name,) for name in self.room])
        most = max(self.room.values(), default=self.pair_room)
        sizes = [np.diff(sum(offsets[name] for name in group)) for group in groups]
        return [np.minimum(size, most) + self.specials for size in sizes]

    def cut(self, sample: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The sample with features that are not longer than they may be."""
        room = {**self.room}
        if self.pair is not None:
            first, second = (len(sample[name]) for name in self.pair)
            sizes = pair_sizes(first, second, self.pair_room)
            room |= zip(self.pair, sizes, strict=True)
        return {**sample, **{name: sample[name][:most] for name, most in room.items()}}


class TextWindows(Protocol):
    """The division of a text into windows, as `objectives.supervised.windows.Windows` does it.

    Attributes:
      asked: the most tokens of a question, which is read before each window.
    """

    @property
    def asked(self) -> int: ...

    def counts(self, questions: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """The windows of texts after questions, of so many tokens: int64 [n]."""

    def window(self, number: int, question: int, text: int) -> tuple[int, int]:
        """Where window `number` begins and ends."""

    def bounds(self, question: int, text: int) -> list[tuple[int, int]]:
        """All windows for a question and a text of so many tokens."""


@dataclasses.dataclass(frozen=True)
class RecordWindows:
    """A sample for each window of each cached record: the record with a part of its text.

    "window" (int32 [2]) is where it begins and ends in the text, in tokens.

    Attributes:
      windows: the division.
      texts: the features that are divided, which are equally long: tokens, or tokens and tags.
      question: the feature that is read before each window, whose further tokens are cut; None
        for none.
      specials: the special tokens of a row.
    """

    windows: TextWindows
    texts: tuple[str, ...]
    question: str | None = None
    specials: int = 0

    def sizes(self, offsets: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of the questions and of the texts of all records, int [records] each.

        Args:
          offsets: int [records + 1] for each feature, the number of tokens before each record.
        """
        texts = np.diff(offsets[self.texts[0]])
        asked = np.zeros_like(texts) if self.question is None else np.diff(offsets[self.question])
        return asked, texts

    @property
    def any_length(self) -> bool:
        """Whether rows may be as long as their tokens; answers are sought in padding, too."""
        return self.question is None

    def row_tokens(self, offsets: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """int [windows]: the tokens of each window's row; None where rows have one length.

        Args:
          offsets: int [records + 1] for each feature, the number of tokens before each record.
        """
        return self.packed_tokens(offsets) if self.any_length else None

    def packed_tokens(self, offsets: Mapping[str, np.ndarray]) -> np.ndarray:
        """int [windows]: the tokens of each window, and of its question, in a packed row."""
        asked, texts = self.sizes(offsets)
        counts = self.windows.counts(asked, texts)
        asked = np.minimum(asked, self.windows.asked)
        bounds = [
            self.windows.window(number, question, _LONGEST)
            for question in range(asked.max(initial=0) + 1)
            for number in (0, 1)
        ]
        ends, steps = np.array(bounds[::2])[asked, 1], np.array(bounds[1::2])[asked, 0]
        tokens = np.repeat(ends, counts)
        tokens[np.cumsum(counts) - 1] = texts - (counts - 1) * steps
        return tokens + np.repeat(asked, counts) + self.specials


def pair_sizes(first: int, second: int, room: int) -> tuple[int, int]:
    """The tokens that two texts keep where both have `room` tokens (BERT's code)."""
    if first + second <= room:
        return first, second
    if first < second:
        first = min(first, (room + 1) // 2)
        return first, room - first
    second = min(second, room // 2)
    return room - second, second


def keeps_records(geometry: object) -> bool:
    """Whether examples have the tokens of cached records, as long as these are."""
    return isinstance(geometry, PerRecord) and geometry.unchanged


class Sentences(Protocol):
    """The offsets of each document's segments in the stream of tokens.

    Attributes:
      total: tokens of the whole stream.
    """

    total: int

    def __len__(self) -> int:
        """The number of documents, without empty ones."""

    def document_at(self, offset: int) -> int:
        """The document that holds the token at `offset`."""

    def __getitem__(self, document: int) -> np.ndarray:
        """int64 [S + 1]: where the S >= 1 segments of a document start, then where it ends.

        The offsets ascend strictly. Document 0 starts at 0, each further one where the one before
        it ends, and the last ends at `total`. A separator belongs to the last segment of its
        document.
        """

    def heads(self, documents: range) -> np.ndarray:
        """int64 [documents + 1]: where consecutive documents start, then where the last ends."""

    def bounds(self, documents: range) -> np.ndarray:
        """int64 [S + 1]: those of consecutive documents, each end being the next one's start."""

    def remember(self, documents: range) -> None:
        """Reads consecutive documents together, because they will be asked for soon."""

    def word_starts(self, start: int, end: int) -> np.ndarray:
        """bool [end - start]: at which of these offsets a word starts.

        All are True if the vocabulary does not say which pieces begin a word.
        """


class Planned(Protocol):
    """A geometry whose samples are planned once for a corpus; the plan is kept beside its cache.

    A plan is a table of integers with one row for each sample. For each column `x_start` there is
    a column `x_end`, and the sample holds the tokens between the two as "x" (int32 [n], empty where
    they are equal). It holds every other column as a number (int32, no axes), and the geometry's
    `constants` if it has some. The geometry is a frozen dataclass, whose repr identifies the plan.

    Attributes:
      columns: names of the columns.
      separators: whether the stream has separators between documents.
      passes: how often the text is planned, each time with other random numbers: `plan` makes one
        pass. A run plans a pass when it reaches the first of its rows. 1 where it is missing.
      segments_of: the token feature whose segments a sample holds, or None. "segments" (int32 [s])
        are the positions above 0 at which a segment starts, without the cuts that a plan makes
        within one; "documents" are those at which a document starts.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def separators(self) -> bool: ...

    @property
    def segments_of(self) -> str | None: ...

    def plan(
        self, sentences: Sentences, rng: np.random.Generator, documents: range
    ) -> Iterable[Rows]:
        """Yields the rows of these documents in order, some at a time.

        They depend on the fields, the text and the arguments alone. Other processes plan other
        documents, and any document may be read.
        """


class Carried(Protocol):
    """A plan for models that carry memory: sample n * rows + r continues (n - 1) * rows + r.

    Such samples are never shuffled. The column `reset_memory` is 1 where a sample continues
    nothing. `rows` is a multiple of `rows_multiple`. The rest is as in `Planned`.
    """

    @property
    def rows_multiple(self) -> int: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def separators(self) -> bool: ...

    @property
    def segments_of(self) -> str | None: ...

    def steps(self, tokens: int, rows: int) -> int:
        """The number of batches of `rows` rows that a stream of so many tokens makes.

        Raises:
          ValueError: it is too short for `rows` rows; the message says how many it allows.
        """

    def plan_rows(
        self, sentences: Sentences, rng: np.random.Generator, steps: range, rows: int
    ) -> Iterable[Rows]:
        """Plans like `Planned.plan`, `rows` rows for each of these steps."""


def constants(geometry: object) -> Mapping[str, int]:
    """The numbers that every sample of a geometry holds."""
    return dict(getattr(geometry, "constants", ()))

"""Which tokens of a corpus make one sample: the shapes an objective may ask for.

A corpus is a stream of tokens, cut into documents, and these into segments (sentences or lines).
Where `separators` is set, the stream has one separator id after each document: offsets count it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np


@dataclasses.dataclass(frozen=True)
class ConcatenateAndSplit:
    """All documents end to end, cut every `stride` tokens; samples {"targets": int32 [n]}.

    Attributes:
      length: tokens of a sample; those at the end of the corpus may be shorter.
      stride: from one sample's start to the next; None for `length`. Shorter ones overlap.
      separators: whether documents are separated.
      constants: further numbers that every sample holds, by name.
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
    """Each document cut every `length` tokens: no sample holds two; {"targets": int32 [n]}."""

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"a sample needs at least one token, got length {self.length}")


@dataclasses.dataclass(frozen=True)
class Duplicated:
    """The n samples of a geometry `times` over: sample i, of n * times, is its sample i % n.

    Each has an index, and with it a noise, of its own: static maskings of a text that differ.
    """

    geometry: ConcatenateAndSplit | SplitDocuments
    times: int

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"samples are there at least once, got times={self.times}")


@dataclasses.dataclass(frozen=True)
class PerRecord:
    """One cached record is one sample (text-to-text tasks)."""


class Sentences(Protocol):
    """Where the segments of each document lie in the stream of tokens.

    Attributes:
      total: tokens of the whole stream.
    """

    total: int

    def __len__(self) -> int:
        """Documents, empty ones left out."""

    def document_at(self, offset: int) -> int:
        """The document that holds the token at `offset`."""

    def __getitem__(self, document: int) -> np.ndarray:
        """int64 [S + 1]: the offsets at which its S >= 1 segments start, then its end.

        They ascend strictly. Document 0 starts at 0, each other one where the last one ends, and
        the last ends at `total`. A separator belongs to the last segment of its document.
        """

    def word_starts(self, start: int, end: int) -> np.ndarray:
        """bool [end - start]: at which of these offsets a word starts.

        At all of them, where the vocabulary does not tell.
        """


class Planned(Protocol):
    """Samples that no arithmetic gives: planned once for a corpus, and kept beside its cache.

    A plan is a table of integers with a row a sample. For each column `x_start` there is one
    `x_end`, and a sample holds the tokens between them as "x" (int32 [n], empty where they are
    equal); every other column it holds as a number (int32, no axes). A frozen dataclass, whose
    repr names the plan.

    Samples of a geometry that has `constants`, as `ConcatenateAndSplit`, hold them too.

    Attributes:
      columns: names of the columns.
      separators: whether documents are separated in the stream.
      segments_of: the token feature whose segments a sample is to have: as "segments" (int32 [s],
        the positions in it, other than 0, at which a segment starts; where a plan cuts one is not
        among them) and as "documents" (those of them at which a document starts). None for neither.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def separators(self) -> bool: ...

    @property
    def segments_of(self) -> str | None: ...

    def plan(
        self, sentences: Sentences, rng: np.random.Generator
    ) -> Iterable[list[tuple[int, ...]]]:
        """The rows in order, some at a time; a function of the fields and the generator alone.

        Holds one document at a time, so that memory is bounded, and may read any of them again.
        """


class Carried(Protocol):
    """`Planned` for models that carry memory: sample n * rows + r continues (n - 1) * rows + r.

    Such samples are never shuffled. `reset_memory` is a column: 1 where a sample continues nothing.
    `rows` is a multiple of `rows_multiple`.
    """

    @property
    def rows_multiple(self) -> int: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def separators(self) -> bool: ...

    @property
    def segments_of(self) -> str | None: ...

    def plan_rows(
        self, sentences: Sentences, rng: np.random.Generator, rows: int
    ) -> Iterable[list[tuple[int, ...]]]:
        """Plans like `Planned.plan`, for batches of `rows` rows; yields a multiple of them.

        Raises:
          ValueError: the corpus is too short for so many rows; says how many it allows.
        """


def constants(geometry: object) -> Mapping[str, int]:
    """The numbers that every sample of a geometry holds."""
    return dict(getattr(geometry, "constants", ()))

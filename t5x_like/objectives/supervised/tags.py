"""Tags of words: a model reads a text and names a tag for each of its words (BERT, section 5.3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from t5x_like.core import tag_schemes
from t5x_like.core.protocols.data import Column, FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.geometry import PerRecord, RecordWindows
from t5x_like.objectives.supervised import frames
from t5x_like.objectives.supervised.frames import Frame
from t5x_like.objectives.supervised.labelled_rows import LabelledRows
from t5x_like.objectives.supervised.windows import Windows

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

PIECES = ("first", "last", "all", "mean")
"""The pieces of a word that may carry its tag; "mean" is that of their states, at the first."""


@dataclasses.dataclass(frozen=True)
class Tags(LabelledRows):
    """Rows "[CLS] words [SEP]", and the tag of each word at some of its pieces.

    Other pieces, and special tokens, have no tag. A row that is too long keeps its beginning, or
    is read in windows. A word belongs to the rows that have its first piece.

    Attributes:
      as_bio: whether tags of entities are read as BIO, whatever they are (`core.tag_schemes`).
      pieces: the pieces of a word that carry its tag: the "first" (BERT), the "last" that the row
        has, or "all", of which the first is asked for the word's tag; or the "mean" of those that
        the row has, which the first then stands for.
      further: for each tag the one of a word's further pieces, with `pieces="all"`: I-LOC for
        B-LOC. Empty where all pieces have the word's.
      stride: the tokens from a window to the next; None where a text that is too long is cut.
    """

    as_bio: bool = False
    pieces: str = "first"
    further: tuple[int, ...] = ()
    stride: int | None = None

    answers: ClassVar = "tags"
    best_metric: ClassVar = "entity_f1"
    measures: ClassVar = ("entity_scores", "word_accuracy")

    def __post_init__(self) -> None:
        if self.pieces not in PIECES:
            raise ValueError(f"pieces must be one of {', '.join(PIECES)}, not {self.pieces!r}")

    @classmethod
    def of_family(cls, frame: Frame, columns: Collection[str], labels: Collection[str]) -> Self:
        """The objective with the special tokens of a family; tags of entities are read as BIO."""
        of_text = super().of_family(frame, columns, labels)
        return dataclasses.replace(of_text, as_bio=tag_schemes.mark_entities(labels))

    def with_pieces(self, pieces: str, labels: Sequence[str]) -> Self:
        """The objective whose tags are at other pieces.

        Args:
          pieces: which, of `PIECES`.
          labels: the names of the tags, in the order of their numbers.
        """
        further: tuple[int, ...] = ()
        if pieces == "all" and self.as_bio:
            inside = [f"I-{name.removeprefix('B-')}" for name in labels]
            further = tuple(
                labels.index(within) if name.startswith("B-") and within in labels else number
                for number, (name, within) in enumerate(zip(labels, inside, strict=True))
            )
        return dataclasses.replace(self, pieces=pieces, further=further)

    @property
    def reads(self) -> tuple[Column, ...]:
        """Words and their tags."""
        tags = Column("tags", "tags", as_bio=self.as_bio)
        return (Column("words", "words"), tags, *self.weight_columns)

    def geometry(self, lengths: Mapping[str, int]) -> PerRecord | RecordWindows:
        """A sample for each row of words, cut where two special tokens need the room; or windows.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short; or the stride is below 1.
        """
        room = masking.text_room(lengths, self.specials)
        if self.stride is not None:
            windows = Windows(room, stride=self.stride)
            return RecordWindows(windows, texts=("words", "tags"), specials=self.specials)
        return PerRecord(room={"words": room, "tags": room}, specials=self.specials)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """Those of a row, and the numbers `labels`, of the same length."""
        of_tokens = FeatureSpec(lengths["inputs"])
        words = {"word_ids": of_tokens} if self.pieces == "mean" else {}
        rows = self.row_features(lengths)
        return {**rows, "labels": of_tokens, **words, **self.weight_features}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Frames `sample["words"]` (int [n]).

        `labels` are those of `sample["tags"]` (int [n], -1 but at first pieces), else -1. With
        `pieces="mean"`, `word_ids` number the words of the row from 1, and are 0 elsewhere.
        """
        del rng
        row, tags = self.row({"A": sample["words"]}, ids), sample["tags"]
        labels = np.full(len(row["inputs"]), -1, np.int32)
        begin = frames.text_place(self.template, ids)
        labels[begin : begin + len(tags)] = self._labels(tags)
        words = self.words(tags >= 0, len(labels), ids)
        return {**row, "labels": labels, **words, **self.weight(sample)}

    def words(self, starts: np.ndarray, length: int, ids: TokenIds) -> dict[str, np.ndarray]:
        """What a model reads of words besides tokens: `word_ids`, int32 [length], or nothing.

        Args:
          starts: bool [tokens], which tokens of the row's text are the first of a word.
          length: the tokens of the row.
          ids: the ids of the vocabulary.
        """
        if self.pieces != "mean":
            return {}
        begin, word_ids = frames.text_place(self.template, ids), np.zeros(length, np.int32)
        word_ids[begin : begin + len(starts)] = np.cumsum(starts)
        return {"word_ids": word_ids}

    def asked(self, starts: np.ndarray, ids: TokenIds) -> np.ndarray:
        """Where in a row the tag of each word is read, int64 [words].

        Args:
          starts: bool [tokens], which tokens of the row's text are the first of a word.
          ids: the ids of the vocabulary.
        """
        at = self._last(starts) if self.pieces == "last" else np.flatnonzero(starts)
        return at + frames.text_place(self.template, ids)

    def _labels(self, tags: np.ndarray) -> np.ndarray:
        """The label of each piece of a text; pieces before the first word have none."""
        starts = tags >= 0
        if self.pieces in ("first", "mean") or not starts.any():
            return tags
        of_words = tags[starts]
        if self.pieces == "last":
            labels = np.full_like(tags, -1)
            labels[self._last(starts)] = of_words
            return labels
        further = np.array(self.further, tags.dtype)[of_words] if self.further else of_words
        labels = np.where(starts, tags, further[np.cumsum(starts) - 1])
        labels[: starts.argmax()] = -1
        return labels

    @staticmethod
    def _last(starts: np.ndarray) -> np.ndarray:
        """The last piece of each word, int64 [words]."""
        first = np.flatnonzero(starts)
        return np.append(first[1:], len(starts))[: len(first)] - 1


PRESETS = {"tags": Tags()}
SUMMARIES = {"tags": "name the tag of each word; for rows with words and tags (BERT)"}

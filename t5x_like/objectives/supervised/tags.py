"""Tags of words: a model reads a text and names a tag for each of its words (BERT, section 5.3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from t5x_like.core import tag_schemes
from t5x_like.core.protocols.data import Column, FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.geometry import PerRecord
from t5x_like.objectives.supervised import frames
from t5x_like.objectives.supervised.frames import Frame
from t5x_like.objectives.supervised.labelled_rows import LabelledRows

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class Tags(LabelledRows):
    """Rows "[CLS] words [SEP]", and the tag of each word at its first token.

    Further tokens of a word, and special tokens, have no tag. A row that is too long keeps its
    beginning.

    Attributes:
      as_bio: whether tags of entities are read as BIO, whatever they are (`core.tag_schemes`).
    """

    as_bio: bool = False

    answers: ClassVar = "tags"
    best_metric: ClassVar = "entity_f1"
    measures: ClassVar = ("entity_scores",)

    @classmethod
    def of_family(cls, frame: Frame, columns: Collection[str], labels: Collection[str]) -> Self:
        """The objective with the special tokens of a family; tags of entities are read as BIO."""
        of_text = super().of_family(frame, columns, labels)
        return dataclasses.replace(of_text, as_bio=tag_schemes.mark_entities(labels))

    @property
    def reads(self) -> tuple[Column, ...]:
        """Words and their tags."""
        tags = Column("tags", "tags", as_bio=self.as_bio)
        return (Column("words", "words"), tags, *self.weight_columns)

    def geometry(self, lengths: Mapping[str, int]) -> PerRecord:
        """A sample for each row of words, cut where two special tokens need the room.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        room = masking.text_room(lengths, self.specials)
        return PerRecord(room={"words": room, "tags": room}, specials=self.specials)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """Those of a row, and the numbers `labels`, of the same length."""
        labels = FeatureSpec(lengths["inputs"])
        return {**self.row_features(lengths), "labels": labels, **self.weight_features}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Frames `sample["words"]` (int [n]); `labels` are `sample["tags"]` (int [n]), else -1."""
        del rng
        row = self.row({"A": sample["words"]}, ids)
        parts = frames.parts(self.template, {"A": sample["tags"]}, ids)
        labels = [x if role == "A" else np.full(len(x), -1, np.int32) for role, x, _ in parts]
        return {**row, "labels": np.concatenate(labels), **self.weight(sample)}


PRESETS = {"tags": Tags()}
SUMMARIES = {"tags": "name the tag of each word; for rows with words and tags (BERT)"}

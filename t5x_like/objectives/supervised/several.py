"""Several classes of a text at once: a model says of each whether it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from t5x_like.core.protocols.data import Column, FeatureSpec
from t5x_like.objectives.supervised.frames import Frame
from t5x_like.objectives.supervised.labelled_rows import LabelledTexts

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class Several(LabelledTexts):
    """Rows "[CLS] text [SEP]" and the classes, none or many, that the column `label` names.

    Attributes:
      num_labels: the number of classes.
    """

    num_labels: int = 2

    label: ClassVar = Column("label", "labels")
    answers: ClassVar = "several"
    best_metric: ClassVar = "micro_f1"
    scores: ClassVar = ("several_scores",)
    scores_of_rows: ClassVar = ("several_accuracy",)

    @classmethod
    def of_family(cls, frame: Frame, columns: Collection[str], labels: Collection[str]) -> Self:
        """The objective with the special tokens of a family, for one text or two."""
        of_texts = super().of_family(frame, columns, labels)
        return dataclasses.replace(of_texts, num_labels=len(labels))

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """Those of a row, and `labels`, 1 for each class that holds."""
        return {
            **super().features(lengths),
            "labels": FeatureSpec(None, "float32", (self.num_labels,)),
        }

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Frames the texts; `labels` are float32 [num_labels]."""
        holds = np.zeros(self.num_labels, np.float32)
        holds[sample["label"]] = 1.0
        return {**super().__call__(sample, rng, ids), "labels": holds}


PRESETS = {"several": Several(), "pair_several": Several(pair=True)}
SUMMARIES = {
    "several": "say which of two classes hold for a text; for rows with inputs and label",
    "pair_several": "say which of two classes hold for two texts; for rows with inputs, inputs2 "
    "and label",
}

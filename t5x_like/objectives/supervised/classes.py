"""Classes of texts: a model reads a text, or two, and names the class (BERT, section 4.1)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from t5x_like.core.protocols.data import Column
from t5x_like.objectives.supervised.labelled_rows import LabelledTexts


@dataclasses.dataclass(frozen=True)
class Classes(LabelledTexts):
    """Rows "[CLS] text [SEP]" and the class that the column `label` names."""

    label: ClassVar = Column("label", "label")
    answers: ClassVar = "classes"
    best_metric: ClassVar = "accuracy"
    scores: ClassVar = ("class_scores", "class_calibration")
    scores_of_rows: ClassVar = ("class_accuracy",)


PRESETS = {"classes": Classes(), "pair_classes": Classes(pair=True)}
SUMMARIES = {
    "classes": "name the class of a text; for rows with inputs and label (BERT)",
    "pair_classes": "name the class of two texts; for rows with inputs, inputs2 and label (BERT)",
}

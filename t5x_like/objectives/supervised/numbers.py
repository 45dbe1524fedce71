"""Numbers of texts: a model reads a text, or two, and says a number (STS-B: BERT, section 4.1)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from t5x_like.core.protocols.data import Column, FeatureSpec
from t5x_like.objectives.supervised.labelled_rows import LabelledTexts


@dataclasses.dataclass(frozen=True)
class Numbers(LabelledTexts):
    """Rows "[CLS] text [SEP]" and the number in the column `label`."""

    label: ClassVar = Column("label", "numbers")
    label_feature: ClassVar = FeatureSpec(None, "float32")
    answers: ClassVar = "numbers"
    best_metric: ClassVar = "pearson"
    scores: ClassVar = ("number_scores",)


PRESETS = {"numbers": Numbers(), "pair_numbers": Numbers(pair=True)}
SUMMARIES = {
    "numbers": "say the number of a text; for rows with inputs and label (BERT)",
    "pair_numbers": "say the number of two texts; for rows with inputs, inputs2 and label (BERT)",
}

"""Ordered classes of texts, such as stars: a model reads a text, or two, and names the class."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from t5x_like.core.protocols.data import Column
from t5x_like.objectives.supervised.labelled_rows import LabelledTexts


@dataclasses.dataclass(frozen=True)
class Ordered(LabelledTexts):
    """Rows "[CLS] text [SEP]" and the class that the column `label` names; 0 is the lowest."""

    label: ClassVar = Column("label", "label")
    answers: ClassVar = "ordered"
    best_metric: ClassVar = "quadratic_kappa"
    scores: ClassVar = ("ordered_scores",)


PRESETS = {"ordered": Ordered(), "pair_ordered": Ordered(pair=True)}
SUMMARIES = {
    "ordered": "name the class, of classes in an order; for rows with inputs and label (CORN)",
    "pair_ordered": "name the class of two texts, of classes in an order; for rows with inputs, "
    "inputs2 and label (CORN)",
}

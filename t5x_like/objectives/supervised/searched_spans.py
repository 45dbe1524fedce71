"""Answers as spans whose end depends on their start, and whether there is one (XLNet, table 8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec
from t5x_like.objectives.supervised.spans import Spans

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class SearchedSpans(Spans):
    """Rows "text [SEP] question [SEP] [CLS]" of `Spans`, which say where an answer may be, too."""

    template: str = "A:0 sep:0 B:1 sep:1 cls:2"
    context_first: bool = True

    answers: ClassVar = "searched spans"
    packs: ClassVar = False

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """Those of `Spans`; `answer_mask`, of the same length as `inputs`; `is_impossible`."""
        return {
            **super().features(lengths),
            "answer_mask": FeatureSpec(lengths["inputs"]),
            "is_impossible": FeatureSpec(None),
        }

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """The row of `Spans`.

        `answer_mask` is 1 at the tokens of the window and at the place of no answer.
        `is_impossible` is 1 where this is where the answer starts.
        """
        row = super().__call__(sample, rng, ids)
        null, begins = row["null_position"], int(row["text_position"])
        mask = np.zeros(len(row["inputs"]), np.int32)
        mask[begins : begins + len(sample["context"])] = 1
        mask[null] = 1
        impossible = np.array(row["start_positions"] == null, np.int32)
        return {**row, "answer_mask": mask, "is_impossible": impossible}


PRESETS = {"searched_spans": SearchedSpans()}
SUMMARIES = {
    "searched_spans": "find where an answer starts, and its end from there; for rows with "
    "inputs and context (XLNet)"
}

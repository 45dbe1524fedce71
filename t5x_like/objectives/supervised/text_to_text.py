"""Text to text: a model reads one text and learns to write another (T5, section 2.4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from t5x_like.core.protocols.data import PAIRS, FeatureSpec, names
from t5x_like.objectives.parts.formats import InputsAndTargets
from t5x_like.objectives.parts.geometry import PerRecord

if TYPE_CHECKING:
    import numpy as np

    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class TextToText(InputsAndTargets):
    """Inputs: the text in the column `inputs`. Targets: that in `targets`.

    SeqIO's own tasks have this objective too: their preprocessors have made the examples.
    """

    reads = PAIRS
    answers: ClassVar = "text"
    measures = ("exact_match",)
    static = True

    def lengths(self, tokens: int) -> dict[str, int]:
        """As many tokens for each text."""
        return dict.fromkeys(names(self.reads), tokens)

    def geometry(self, lengths: Mapping[str, int]) -> PerRecord:
        """A sample for each pair; longer texts are cut later."""
        del lengths
        return PerRecord(unchanged=True)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """Every feature that `lengths` names: SeqIO's tasks may have more than the two."""
        return {name: FeatureSpec(length) for name, length in lengths.items()}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Returns the sample."""
        del rng, ids
        return dict(sample)


PRESETS = {"text_to_text": TextToText()}
SUMMARIES = {"text_to_text": "write the targets after reading the inputs; for pairs of texts (T5)"}

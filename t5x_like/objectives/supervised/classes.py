"""Classes of texts: a model reads a text and names its class (BERT, section 4.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from t5x_like.core.protocols.data import Column, FeatureSpec
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.geometry import PerRecord

if TYPE_CHECKING:
    import numpy as np

    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class Classes:
    """Rows "[CLS] text [SEP]" of the column `inputs`, and the class that the column `label` names.

    A text that is too long keeps its beginning.
    """

    kind: ClassVar = "encoder"
    reads: ClassVar = (Column("inputs"), Column("label", "label"))
    answers: ClassVar = "classes"
    measures: ClassVar[tuple[str, ...]] = ()  # the loss itself counts what is right
    needs: ClassVar = ("cls", "sep")
    steps: ClassVar[tuple[str, ...]] = ()
    static: ClassVar = True

    def lengths(self, tokens: int) -> dict[str, int]:
        """`inputs` of `tokens` tokens."""
        return {"inputs": tokens}

    def geometry(self, lengths: Mapping[str, int]) -> PerRecord:
        """A sample for each row of the text, cut where two special tokens need the room.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        return PerRecord(room={"inputs": masking.text_room(lengths, 2)})

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """`inputs` and `token_type_ids`, and the number `labels`."""
        tokens = FeatureSpec(lengths["inputs"])
        return {"inputs": tokens, "token_type_ids": tokens, "labels": FeatureSpec(None)}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Frames `sample["inputs"]` (int [n]); the number of the class stands in `labels`."""
        del rng
        inputs, token_type_ids = masking.with_specials(ids, sample["inputs"])
        return {"inputs": inputs, "token_type_ids": token_type_ids, "labels": sample["label"]}


PRESETS = {"classes": Classes()}
SUMMARIES = {"classes": "name the class of a text; for rows with inputs and label (BERT)"}

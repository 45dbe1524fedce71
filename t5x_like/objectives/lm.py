"""Language modelling: predict every token of a text from the tokens before it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.core.protocols.data import FeatureSpec
from t5x_like.objectives.parts.continued_rows import Continued, RandomlyContinued
from t5x_like.objectives.parts.formats import TargetsOnly
from t5x_like.objectives.parts.geometry import ConcatenateAndSplit

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class LanguageModeling(TargetsOnly):
    """Targets: the text in rows, with a separator after each document (GPT-2, section 2).

    A row may hold several documents, and may begin anywhere in a document.
    """

    needs = ("eos",)

    def geometry(self, lengths: Mapping[str, int]) -> ConcatenateAndSplit:
        """Samples that fill the targets.

        Raises:
          ValueError: `lengths` lacks the targets, or gives them no room for text.
        """
        return ConcatenateAndSplit(_room(lengths, 0), separators=True)

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Returns `sample["targets"]` (int [n], any n) as int32."""
        return {"targets": np.asarray(sample["targets"], dtype=np.int32)}


@dataclasses.dataclass(frozen=True)
class EndedLanguageModeling(LanguageModeling):
    """Targets: the text in rows that end with EOS, no separators (T5, section 3.2.3)."""

    steps = ("append_eos_after_trim",)

    def geometry(self, lengths: Mapping[str, int]) -> ConcatenateAndSplit:
        """Samples that fill the targets together with the end of sequence.

        Raises:
          ValueError: `lengths` lacks the targets, or gives them no room for text.
        """
        return ConcatenateAndSplit(_room(lengths, 1))


@dataclasses.dataclass(frozen=True)
class ContinuedLanguageModeling(TargetsOnly):
    """Targets: the text in rows that continue, for models that carry a state from step to step.

    Row b of each batch goes on where row b of the batch before ended. There is a separator after
    each document. `document_starts` is 1 at targets that continue nothing, where a model begins
    with an empty state: the first tokens of documents, and those of the first step. `preceding`,
    int32 [1], is the token before the targets, which a model reads first; it is empty at the first
    step.

    Attributes:
      mean_length: how many tokens most steps read, if they read more or less of them at random, up
        to the length of the targets (`RandomlyContinued`); None: all fill the targets.
    """

    needs = ("eos",)

    mean_length: int | None = None

    def geometry(self, lengths: Mapping[str, int]) -> Continued:
        """Rows that continue from batch to batch.

        Raises:
          ValueError: `lengths` lacks the targets, or gives them no room for text.
        """
        room = _room(lengths, 0)
        if self.mean_length is None:
            return Continued(room)
        return RandomlyContinued(room, mean=self.mean_length)

    def features(self, lengths: Mapping[str, int]) -> dict[str, FeatureSpec]:
        """`targets`, `document_starts` of the same length, and `preceding`."""
        targets = FeatureSpec(lengths["targets"])
        return {"targets": targets, "document_starts": targets, "preceding": FeatureSpec(1)}

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """The features of a sample of `Continued`."""
        starts = np.zeros(len(sample["targets"]), np.int32)
        starts[:1] = sample["reset_memory"]
        starts[sample["documents"]] = 1
        return {
            "targets": np.asarray(sample["targets"], np.int32),
            "document_starts": starts,
            "preceding": np.asarray(sample["preceding"], np.int32),
        }


def _room(lengths: Mapping[str, int], ends: int) -> int:
    """The tokens of text in a row that also holds `ends` ends of sequence."""
    if "targets" not in lengths:
        raise ValueError(f"a language model needs the length of targets, got only {dict(lengths)}")
    if lengths["targets"] <= ends:
        raise ValueError(
            f"targets of {lengths['targets']} tokens have no room for text; set their length to "
            f"{ends + 1} or more"
        )
    return lengths["targets"] - ends


PRESETS = {
    "lm": LanguageModeling(),
    "lm_t5": EndedLanguageModeling(),
    "lm_continued": ContinuedLanguageModeling(),
}
SUMMARIES = {
    "lm": "predict every token from those before it; documents are separated (GPT-2)",
    "lm_t5": "predict every token from those before it; each row ends with EOS (T5)",
    "lm_continued": "predict every token; rows continue from batch to batch, for a carried state",
}

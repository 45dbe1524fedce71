"""Text to text: a model reads one text and learns to write another (T5, section 2.4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from t5x_like.core.protocols.data import PAIRS, FeatureSpec, names
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.formats import InputsAndTargets
from t5x_like.objectives.parts.geometry import PerRecord
from t5x_like.objectives.supervised import frames

if TYPE_CHECKING:
    import numpy as np

    from t5x_like.core.protocols.data import TokenIds


@dataclasses.dataclass(frozen=True)
class TextToText(InputsAndTargets):
    """Inputs: the text in the column `inputs`. Targets: that in `targets`.

    SeqIO's own tasks have this objective too: their preprocessors have made the examples.

    Attributes:
      measures: the metrics of what a model writes; they change no example.
      several_targets: whether held-out rows with the same inputs are several right targets of one
        text, which these metrics count once.
    """

    measures: tuple[str, ...] = dataclasses.field(default=("exact_match",), repr=False)
    several_targets: bool = dataclasses.field(default=False, repr=False)

    reads = PAIRS
    answers: ClassVar = "text"
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


@dataclasses.dataclass(frozen=True)
class FramedTextToText(TextToText):
    """Both texts between the special tokens that an encoder-decoder such as BART puts around one.

    A text that is too long keeps its beginning and its special tokens.
    """

    template: ClassVar = "begin:0 A:0 eos:0"

    needs = ("eos",)
    steps = ()
    decoder_start = "eos"

    def geometry(self, lengths: Mapping[str, int]) -> PerRecord:
        """A sample for each pair, cut where special tokens need the room.

        Raises:
          ValueError: a length is missing, or leaves no room for text.
        """
        specials = frames.specials(self.template)
        room = {
            name: masking.text_room({"inputs": lengths[name]}, specials)
            for name in names(self.reads)
        }
        return PerRecord(room=room)

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Frames `sample["inputs"]` and `sample["targets"]`, int [n] each."""
        del rng
        return {
            name: frames.framed(self.template, {"A": sample[name]}, ids)[0]
            for name in names(self.reads)
        }


PRESETS = {"text_to_text": TextToText(), "bart_text_to_text": FramedTextToText()}
SUMMARIES = {
    "text_to_text": "write the targets after reading the inputs; for pairs of texts (T5)",
    "bart_text_to_text": "the same, with <s> and </s> around both texts; for pairs (BART)",
}

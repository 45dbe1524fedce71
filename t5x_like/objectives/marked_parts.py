"""Masked tokens of chosen parts of a text: entities, or whatever else somebody has marked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from t5x_like.core.protocols.data import Column
from t5x_like.objectives.mlm import MaskedLM
from t5x_like.objectives.noise import masking
from t5x_like.objectives.parts.geometry import RecordWindows
from t5x_like.objectives.supervised.windows import Windows

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import TokenIds

_SPECIALS = 2


@dataclasses.dataclass(frozen=True)
class MarkedParts(MaskedLM):
    """Predicts tokens of the marked parts of a text, and no others.

    A sample is a window of a row's text, whose marked parts are given with it or stand between
    markers in it. A text that is too long is read in windows, one after another; tokens of a part
    that two windows share are predicted in both, unless parts are whole. A window without a part
    has no predictions, and counts for nothing in the loss.

    Attributes:
      whole: whether all tokens of a part are predicted or none, as for the entities of ERNIE (Sun
        et al., 2019, section 3.2). Parts are drawn until `masked_rate` allows no more of them.
        Otherwise each token of the parts may be drawn alone.
      markers: the texts before and after each part, which are left out of what is read; None where
        rows have a column `parts`.
    """

    whole: bool = False
    markers: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if self.static or self.dupe_factor != 1 or self.whole_words:
            raise ValueError(f"{name} draws new tokens of parts in every epoch, not words")
        if self.markers is not None and (
            not isinstance(self.markers, tuple | list)
            or len(self.markers) != 2
            or not all(isinstance(text, str) and text for text in self.markers)
        ):
            raise ValueError(f"{name}: markers are two texts, ('[', ']'), not {self.markers!r}")
        between = None if self.markers is None else (self.markers[0], self.markers[1])
        columns = (
            Column("targets", "passage", markers=between),
            Column("parts", "spans", markers=between),
        )
        object.__setattr__(self, "reads", columns)

    def geometry(self, lengths: Mapping[str, int]) -> RecordWindows:
        """Windows whose length is that of the inputs less two special tokens.

        Raises:
          ValueError: `lengths` has no inputs, or they are too short.
        """
        room = masking.text_room(lengths, _SPECIALS)
        windows = Windows(max(room, 2), question=1, stride=room)
        return RecordWindows(windows, texts=("targets",), specials=_SPECIALS)

    def __call__(
        self, sample: Mapping[str, np.ndarray], rng: np.random.Generator, ids: TokenIds
    ) -> dict[str, np.ndarray]:
        """Masks `sample["targets"]` (int [n]), tokens "window" (int [2]) of a text.

        `sample["parts"]` [parts, 4] is as a cache keeps spans.
        """
        inputs, token_type_ids = masking.with_specials(ids, sample["targets"])
        positions = self._chosen(sample, self._budget(len(inputs)), rng)
        noisy = masking.masked_copy(inputs, positions, rng, ids)
        return masking.example(noisy, token_type_ids, inputs, positions)

    def _chosen(
        self, sample: Mapping[str, np.ndarray], budget: int, rng: np.random.Generator
    ) -> np.ndarray:
        begin, end = sample["window"].tolist()
        first, last = sample["parts"][:, :2].T
        starts, stops = np.maximum(first, begin), np.minimum(last + 1, end)
        here = (first >= 0) & (starts < stops)
        if self.whole:
            here &= (first >= begin) & (last < end)
        starts, sizes = starts[here] - begin + 1, (stops - starts)[here]  # after [CLS]
        if self.whole:
            chosen = masking.words_that_fit(rng.permutation(len(starts)), sizes, budget)
            return np.unique(masking.span_positions(starts[chosen], sizes[chosen]))
        marked = np.unique(masking.span_positions(starts, sizes))
        return rng.choice(marked, min(budget, len(marked)), replace=False, shuffle=False)


PRESETS = {"mlm_parts": MarkedParts(), "mlm_whole_parts": MarkedParts(whole=True)}

SUMMARIES = {
    "mlm_parts": "masked tokens of chosen parts of a text alone",
    "mlm_whole_parts": "chosen parts of a text, each masked as a whole, such as entities (ERNIE)",
}

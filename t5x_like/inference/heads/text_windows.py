"""How a head reads a text: as one row, whose end is cut, or in windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from t5x_like.inference.heads.learned import Learned
from t5x_like.inference.text_rows import Framing, Row
from t5x_like.objectives.parts.geometry import RecordWindows
from t5x_like.objectives.supervised.frames import Frame
from t5x_like.objectives.supervised.labelled_rows import LabelledTexts
from t5x_like.objectives.supervised.tags import Tags


class ReadText(NamedTuple):
    """The rows of a text, and where each begins and ends in it, in tokens."""

    rows: list[Row]
    bounds: list[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class TextReading:
    """How a model reads a text.

    Attributes:
      tags: which piece of a word says its tag.
      division: the windows of a text; None where it is cut.
    """

    tags: Tags
    division: RecordWindows | None = None

    @classmethod
    def of_family(cls, frame: Frame, learned: Learned) -> TextReading:
        """The reading of a model, with the special tokens of its family."""
        objectives, length, most = learned
        tags = [objective for objective in objectives if isinstance(objective, Tags)]
        division = None
        for objective in objectives:
            if not isinstance(objective, Tags | LabelledTexts) or objective.stride is None:
                continue
            if length is not None:
                tokens = length if most is None else min(length, most)
                geometry = objective.geometry({"inputs": tokens})
                assert isinstance(geometry, RecordWindows)
                division = geometry
        return cls(tags[0] if tags else Tags.of_family(frame, (), ()), division)

    def read(self, tokens: Sequence[int], framing: Framing) -> ReadText:
        """The rows of a text's tokens."""
        if self.division is None:
            row = framing.row(tokens)
            return ReadText([row], [(0, len(row.tokens) - len(framing.row(()).tokens))])
        bounds = self.division.windows.bounds(0, len(tokens))
        return ReadText([framing.row(tokens[begin:end]) for begin, end in bounds], bounds)

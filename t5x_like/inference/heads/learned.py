"""What a model's run says of how it read texts, for those who read as it did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Learned(NamedTuple):
    """What is known of a run; an imported model has none.

    Attributes:
      objectives: the objectives that the model has learned.
      length: the tokens of a row in training; None where that is not known.
      most: the most tokens of a row; None for any number.
    """

    objectives: Sequence[object] = ()
    length: int | None = None
    most: int | None = None

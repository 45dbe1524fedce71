"""Patterns on paths of parameters, which may choose layers of a stack: `encoder.trunk@0-2`."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

_WITH_LAYERS = re.compile(r"(.*)@(\d+)(?:-(\d+))?")


class LayerPattern(NamedTuple):
    """A pattern.

    Attributes:
      expression: a regular expression, of which a path contains a match.
      layers: the first and the last layer, counted from 0 at the input; None for whole parameters.
    """

    expression: str
    layers: tuple[int, int] | None

    @classmethod
    def read(cls, text: str) -> LayerPattern:
        """The pattern of `EXPRESSION`, `EXPRESSION@LAYER` or `EXPRESSION@FIRST-LAST`."""
        chosen = _WITH_LAYERS.fullmatch(text)
        if chosen is None:
            return cls(text, None)
        return cls(chosen[1], (int(chosen[2]), int(chosen[3] or chosen[2])))

    def chosen(self, numbers: np.ndarray | None) -> np.ndarray:
        """Which layers of a parameter that matches are chosen: bool [*stacked], or [].

        Args:
          numbers: the numbers of its layers, [*stacked]; None where it is in none.
        """
        if self.layers is None:
            return np.array(True)
        if numbers is None:
            return np.array(False)
        first, last = self.layers
        return (first <= numbers) & (numbers <= last)

    def problem(self, numbers: list[np.ndarray]) -> str:
        """Why parameters whose layers have these numbers lack the layers chosen; "" if not."""
        if self.layers is None:
            return ""
        most = max((int(of_layers.max()) for of_layers in numbers), default=-1)
        first, last = self.layers
        if first <= last <= most:
            return ""
        last_layer = f"the last layer is {most}" if numbers else "none of them is in a layer"
        return f"{last_layer}; layers are counted from 0 at the input"

"""The axes of a sweep: settings with several values, named one by one or drawn from ranges."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t5x_like.core.spelling import nearest

NUMBERS = {
    "batch_size": int,
    "length": int,
    "stride": int,
    "reinit_layers": int,
    "rank": int,
    "width": int,
    "virtual_tokens": int,
    "epochs": float,
    "learning_rate": float,
    "alpha": float,
    "lora_dropout": float,
    "label_smoothing": float,
    "focal_gamma": float,
    "r_drop": float,
    "average_last": float,
}
"""The arguments of `t5x_like.finetune`, and of a `Method`, that are axes and numbers."""
NAMES = ("method", "pieces", "states")
"""Those that are axes and names."""
_DIGITS = 3
"""Significant digits of a number that is drawn: a table can show them all."""


@dataclasses.dataclass(frozen=True)
class Range:
    """A range from which values are drawn.

    Attributes:
      low, high: its ends.
      log: whether logarithms are drawn uniformly, in place of the values.
    """

    low: float
    high: float
    log: bool = False

    def check(self, name: str) -> None:
        """Raises ValueError where nothing can be drawn for a setting of this name."""
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"{name}: a range rises, as in 1e-5..1e-3, not {self}")
        if self.log and self.low <= 0:
            raise ValueError(f"{name}: a logarithm is of numbers above 0: {self}")
        if name in NAMES:
            raise ValueError(f"{name} has names, which no range has: list them in a grid")

    def drawn(self, name: str, trials: int, seed: int) -> list[float]:
        """So many values for a setting; more trials begin with the same values.

        Whole numbers are drawn for settings that are whole numbers.
        """
        # Each setting has numbers of its own, whatever else is drawn.
        draw = np.random.default_rng([seed, zlib.crc32(name.encode())])
        whole = NUMBERS.get(name) is int
        if self.log:
            ends = math.log(self.low), math.log(self.high)
            values = np.exp(draw.uniform(*ends, size=trials))
        else:
            half = 0.5 if whole else 0.0  # so that the ends are as likely as the others
            values = draw.uniform(self.low - half, self.high + half, size=trials)
        if whole:
            return [int(np.clip(round(x), self.low, self.high)) for x in values]
        return [float(f"{x:.{_DIGITS}g}") for x in values]

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' if self.log else ''}"


def is_macro(name: str) -> bool:
    """Whether an axis is a setting by its name in gin, such as WEIGHT_DECAY or bert.Config.x."""
    return name.isupper() or "." in name


def check_names(names: Sequence[str]) -> None:
    """Raises ValueError where an axis is not a setting that may vary."""
    for name in names:
        if not is_macro(name) and name not in (*NUMBERS, *NAMES):
            known = [*NUMBERS, *NAMES]
            raise ValueError(
                f"{name!r} is not an axis of a sweep, as are settings of finetune with a number or "
                "a name, and those of gin, such as WEIGHT_DECAY" + nearest(name, known, of="axes")
            )


def settings(
    grid: Mapping[str, Sequence[Any]],
    ranges: Mapping[str, Range],
    *,
    trials: int | None,
    draw_seed: int,
) -> list[dict[str, Any]]:
    """All settings, each once: each draw with each combination of the grid's values.

    Args:
      grid: {axis: its values}.
      ranges: {axis: the range of its values}.
      trials: how many times all ranges are drawn.
      draw_seed: the seed of the draws.

    Raises:
      ValueError: an axis is unknown, has no values or one twice, is both drawn and listed, or the
        number of draws does not fit.
    """
    check_names([*grid, *ranges])
    for name, values in grid.items():
        if not values:
            raise ValueError(f"{name} has no values")
        if len({repr(value) for value in values}) < len(values):
            raise ValueError(f"{name} has a value twice: {', '.join(map(str, values))}")
        if name in ranges:
            raise ValueError(f"{name} is both listed and drawn: leave out one of the two")
    for name, drawn_range in ranges.items():
        drawn_range.check(name)
    if bool(ranges) != (trials is not None) or (trials is not None and trials < 1):
        raise ValueError(
            "trials says how often ranges are drawn: give a number of at least 1 with ranges "
            "(draw), and none without"
        )
    drawn = {name: of_axis.drawn(name, trials or 0, draw_seed) for name, of_axis in ranges.items()}
    draws = [dict(zip(drawn, row, strict=True)) for row in zip(*drawn.values(), strict=True)]
    combined = [
        dict(zip(grid, row, strict=True)) for row in itertools.product(*map(tuple, grid.values()))
    ]
    together = [{**draw, **row} for draw in draws or [{}] for row in combined]
    return list({repr(row): row for row in together}.values())


def label(setting: Mapping[str, Any]) -> str:
    """A setting in words: `learning_rate=2e-05, batch_size=16`."""
    return ", ".join(f"{name}={value}" for name, value in setting.items())


def folder(setting: Mapping[str, Any]) -> str:
    """The same as the name of a folder, in which unusual characters are `_`."""
    return re.sub(r"[^\w.,=+-]", "_", label(setting).replace(", ", ","))

"""Progress on standard error: lines, and bars on a terminal, as a log file has no use for `\\r`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm import tqdm

_BRACES = str.maketrans({"{": "{{", "}": "}}"})
_moves = itertools.count()
_latest = 0


def moves() -> int:
    """A number that changes whenever a bar moves, seen or not: long work is not standing still."""
    return _latest


def _move() -> None:
    global _latest
    _latest = next(_moves)


class Bar(tqdm):
    """tqdm's bar. One that a signal ends while it is being made is closed without a word.

    tqdm's monitor, which a signal may end while its thread starts, is not used: without steps
    that a bar skips (`miniters`) there is nothing for it to do.
    """

    disable = True
    monitor_interval = 0

    def say(self, text: str) -> None:
        """Shows a text after the bar, from its next move on, in place of times and rates."""
        self.bar_format = f"{{n_fmt}}/{{total_fmt}} |{{bar}}| {text.translate(_BRACES)}"

    def update(self, n: float | None = 1) -> bool | None:
        _move()
        return super().update(n)

    def __iter__(self) -> Iterator[Any]:
        for thing in super().__iter__():
            _move()
            yield thing


def bar(things: Iterable[Any] | None = None, *, shown: bool = True, **options: Any) -> Bar:
    """A bar on standard error, over `things` or moved by `update`; options are tqdm's."""
    usual: dict[str, Any] = {"miniters": 1, "dynamic_ncols": True}
    return Bar(things, disable=None if shown else True, **usual, **options)


def line(text: str) -> None:
    """Writes a line above the bars."""
    tqdm.write(text, file=sys.stderr)

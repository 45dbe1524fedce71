"""Progress on standard error: lines, and bars on a terminal, as a log file has no use for `\\r`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm


class Bar(tqdm):
    """tqdm's bar. One that a signal ends while it is being made is closed without a word."""

    disable = True


def bar(things: Iterable[Any] | None = None, *, shown: bool = True, **options: Any) -> Bar:
    """A bar on standard error, over `things` or moved by `update`; options are tqdm's."""
    return Bar(things, disable=None if shown else True, **options)


def line(text: str) -> None:
    """Writes a line above the bars."""
    tqdm.write(text, file=sys.stderr)

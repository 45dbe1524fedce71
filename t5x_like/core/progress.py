"""Progress bars, shown only on a terminal: a log file has no use for `\\r`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tqdm import tqdm


def bar(things: Iterable[Any] | None = None, *, shown: bool = True, **options: Any) -> tqdm:
    """A bar on standard error, over `things` or moved by `update`; options are tqdm's."""
    return tqdm(things, disable=None if shown else True, **options)

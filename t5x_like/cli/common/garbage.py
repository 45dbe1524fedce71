"""Looks for garbage seldom: a command imports and traces much that lives as long as it does."""

from __future__ import annotations

import atexit
import gc

_THRESHOLDS = (20_000, 20, 50)


def collect_seldom() -> None:
    """Makes Python look for cyclic garbage less often, and not when it ends.

    With Python's own thresholds a tenth of a start goes into looks at modules and traces, none of
    which is garbage. At the end of a process Python looks at all of it once more, half a second
    after an import of JAX, though the system takes the memory back anyway.
    """
    gc.set_threshold(*_THRESHOLDS)
    atexit.unregister(gc.freeze)  # where commands are called from Python, one after the other
    atexit.register(gc.freeze)

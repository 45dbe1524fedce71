"""Leaves out what Orbax and TensorStore print about errors that they also raise.

These are errors of saves and reads. The error that ends a run is to be the last line, without their
tracebacks before and after it.
`T5X_LIKE_TRACEBACK` leaves everything as it is.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import traceback
import warnings
from typing import Any

_RAISING = ("async_checkpointer", "checkpoint", "checkpoint_manager", "future")
"""The modules of Orbax that log an exception and raise it as well."""


@functools.cache
def quieten() -> None:
    """Leaves these messages out from now on, in this process."""
    if os.environ.get("T5X_LIKE_TRACEBACK"):
        return
    logging.getLogger("absl").addFilter(_is_news)
    logging.getLogger("asyncio").addFilter(_is_of_others)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    shown = sys.unraisablehook

    def show(unraisable: Any) -> None:
        # TensorStore's threads bring results to a loop that Orbax has closed after an error. No
        # other caller of this function is without a frame of Python.
        trace = unraisable.exc_traceback
        from_thread = trace and trace.tb_frame.f_code.co_name == "call_soon_threadsafe"
        # What Orbax read at the same time as the part that failed is left where it was.
        code = getattr(unraisable.object, "cr_code", None)
        if not from_thread and not (code and "orbax" in code.co_filename):
            shown(unraisable)

    sys.unraisablehook = show


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record is shown; the traceback of one of Orbax's is taken from it."""
    if not record.exc_info or "orbax" not in record.pathname:
        return True
    record.exc_info = record.exc_text = None
    return record.module not in _RAISING


def _is_of_others(record: logging.LogRecord) -> bool:
    """Whether an error that nobody waited for is neither Orbax's nor TensorStore's."""
    text = record.getMessage()
    if "never retrieved" not in text:
        return True
    trace = record.exc_info[2] if record.exc_info else None
    places = [text, *(frame.filename for frame in traceback.extract_tb(trace))]
    # A future of TensorStore has no traceback; its errors say which `tensorstore_spec` they are of.
    return not any("orbax" in place or "tensorstore" in place for place in places)

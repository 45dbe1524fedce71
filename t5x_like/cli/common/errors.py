"""How an error ends a command: what is printed, and the exit status."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from typing import Any

from t5x_like.core import exit_status


def is_mendable(error: BaseException) -> bool:
    """Whether a message is enough: errors that users can mend are of these classes or of ours."""
    if os.environ.get("T5X_LIKE_TRACEBACK"):
        return False
    if isinstance(error, ValueError | OSError | RecursionError) or _is_ours(error):
        return True

    from t5x_like.core import whole_files

    return whole_files.error_number(error) is not None


def status_of(error: BaseException) -> int:
    """The exit status after an error."""
    if isinstance(error, KeyboardInterrupt):
        return exit_status.INTERRUPTED

    from t5x_like.core import whole_files

    full = whole_files.error_number(error) in whole_files.FULL
    return getattr(error, "exit_status", exit_status.NO_ROOM if full else exit_status.ERROR)


def text_of(error: BaseException) -> str:
    """The message of an error; for one of the system, which gives no advice, also what to do."""
    if not is_mendable(error):
        return f"{type(error).__name__}: {error}"

    from t5x_like.core import whole_files
    from t5x_like.core.buckets import staging

    number = None if _is_ours(error) else whole_files.error_number(error)
    advice = "" if number is None else whole_files.ADVICE[number]
    text = staging.with_addresses(whole_files.with_lasting_names(str(error)))
    return text if advice in text else f"{text}: {advice}"


def show(error: BaseException) -> None:
    """Prints an error: a line if that is enough, or the traceback of a bug."""
    if isinstance(error, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
    elif is_mendable(error):
        print(f"error: {text_of(error)}", file=sys.stderr)
        _leave_quietly()
    else:
        traceback.print_exception(error)


@functools.cache
def _leave_quietly() -> None:
    """Hides the errors of finalisers: objects that an error has left half made raise them, too."""
    shown = sys.unraisablehook

    def show(unraisable: Any) -> None:
        if getattr(unraisable.object, "__name__", "") != "__del__":
            shown(unraisable)

    sys.unraisablehook = show


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "t5x_like"

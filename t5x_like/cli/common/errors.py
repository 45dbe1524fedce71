"""How an error ends a command: what is printed, and the exit status."""

from __future__ import annotations

import errno
import os
import sys
import traceback

from t5x_like.core import exit_status


def is_mendable(error: BaseException) -> bool:
    """Whether a message is enough: errors that users can mend are of these classes or of ours."""
    if os.environ.get("T5X_LIKE_TRACEBACK"):
        return False
    return isinstance(error, ValueError | OSError | RecursionError) or _is_ours(error)


def status_of(error: BaseException) -> int:
    """The exit status after an error."""
    if isinstance(error, KeyboardInterrupt):
        return exit_status.INTERRUPTED
    return getattr(error, "exit_status", exit_status.ERROR)


def text_of(error: BaseException) -> str:
    """What other processes are told of an error."""
    return _message(error) if is_mendable(error) else f"{type(error).__name__}: {error}"


def show(error: BaseException) -> None:
    """Prints an error: a line if that is enough, or the traceback of a bug."""
    if isinstance(error, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
    elif is_mendable(error):
        print(f"error: {_message(error)}", file=sys.stderr)
    else:
        traceback.print_exception(error)


def _message(error: BaseException) -> str:
    """An error as a user reads it: what lies in a bucket has its address there."""
    if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
        return str(error)  # of this disk, such as that it is full
    from t5x_like.core.buckets import staging

    return staging.as_known(str(error))


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "t5x_like"

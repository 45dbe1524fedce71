"""Output that a command can do without: it goes on where nobody reads it, or a disk is full."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO


class _Lasting(io.FileIO):
    """A file that drops what cannot be written, and all of it once its reader has gone."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EIO):  # a pipe's reader, or a terminal
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self.fileno())
                os.close(null)
            return len(data)


@contextlib.contextmanager
def lasting_output() -> Iterator[None]:
    """In the block, no write to this process's own standard output or error fails."""
    before = sys.stdout, sys.stderr
    sys.stdout = _lasting(sys.stdout, own=sys.stdout is sys.__stdout__)
    sys.stderr = _lasting(sys.stderr, own=sys.stderr is sys.__stderr__)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def _lasting(stream: Any, *, own: bool) -> TextIO:
    if stream is None:  # it was closed before Python began
        return Path(os.devnull).open("w")
    if not own:
        return stream  # a notebook's or a test's
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Lasting(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )

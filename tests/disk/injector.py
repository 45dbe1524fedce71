"""Makes writes of other processes fail, in Python and in libraries, with an errno of the system."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).parent
OPEN, CREATE, MAKE, WRITE, SYNC, RENAME, REMOVE = (1 << place for place in range(7))
"""Kinds of calls; `OPEN` is of reading too, and `MAKE` of folders and links."""
CALLS: Mapping[int, int] = {
    errno.ENOSPC: MAKE | WRITE,
    errno.EDQUOT: CREATE | MAKE | WRITE,
    errno.EROFS: CREATE | MAKE | WRITE | SYNC | RENAME | REMOVE,
    errno.EACCES: CREATE | MAKE | RENAME | REMOVE,
    errno.EIO: WRITE | SYNC,
    errno.EMFILE: OPEN,
    errno.EFBIG: WRITE,
}
"""For each error, the calls that give it."""
_LAYOUT = struct.Struct("4i1024s1024s1024s")
_FAILED = struct.Struct("i")


@dataclasses.dataclass(frozen=True)
class Injector:
    """A library that is loaded before others, and what it is told.

    Attributes:
      environment: variables of processes whose writes it can make fail.
    """

    environment: Mapping[str, str]
    _control: mmap.mmap

    @contextlib.contextmanager
    def failing(
        self, number: int, where: str, *, since: str = "", until: str = "", spared: int = 0
    ) -> Iterator[None]:
        """Makes calls on paths fail in the block.

        Args:
          number: the errno.
          where: a pattern of paths, whose `*` stands for `/` too.
          since: a file from whose appearance on they fail; "" for the begin of the block.
          spared: the number of calls that work after that.
          until: a file from whose appearance on they work again; "" for the end of the block.
        """
        texts = [os.fsencode(text) for text in (where, since, until)]
        self._control[:] = _LAYOUT.pack(number, CALLS[number], 0, spared, *texts)
        try:
            yield
        finally:
            self._control[:4] = bytes(4)

    @property
    def failed(self) -> int:
        """How many calls have failed in the last block."""
        return _FAILED.unpack_from(self._control, 8)[0]


def injector(folder: Path) -> Injector | None:
    """An injector whose files are in a folder; None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    library, told = folder / "failing_writes.so", folder / "failing_writes"
    source = str(HERE / "failing_writes.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", source, "-o", str(library), "-ldl"], check=True
    )
    told.write_bytes(bytes(_LAYOUT.size))
    with told.open("r+b") as file:
        control = mmap.mmap(file.fileno(), 0)
    return Injector({"LD_PRELOAD": str(library), "FAILING_WRITES": str(told)}, control)

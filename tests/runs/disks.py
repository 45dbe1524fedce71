"""Small disks, which tests fill."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def disk(where: Path, *, options: str) -> Iterator[Path]:
    """A small disk in memory; skips the test where it cannot be made."""
    where.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(where)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("only root may mount a disk")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def fill(where: Path) -> None:
    """Takes all bytes of a disk."""
    with contextlib.suppress(OSError), (where / "filling").open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass

"""The version of the code: versions of packages, digests of our files and the user's modules."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent.parent
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy")


def lines(modules: Iterable[str] = ()) -> Iterator[str]:
    """Lines about the code that should be the same on all hosts of a run.

    Args:
      modules: names of imported modules, or paths of `.py` files, in addition to our own.
    """
    yield f"python {platform.python_version()}"
    yield from (f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    for file in sorted(_PACKAGE.rglob("*.py")):
        yield f"{file.relative_to(_PACKAGE.parent)} {_digest(file)}"
    for name in modules:
        path = name if name.endswith(".py") else getattr(sys.modules.get(name), "__file__", None)
        if path and Path(path).is_file():
            yield f"{name} {_digest(Path(path))}"


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]

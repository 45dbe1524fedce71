"""The version of the code: packages, the commit, digests of our files and the user's modules."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

SOURCES = (
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "t5x_like",
    "tasks",
    "gin",
    "launch",
)
"""The files and folders of a checkout that are part of the package."""
_PACKAGE = Path(__file__).resolve().parent.parent.parent
_WHEEL = re.compile(r"-0g([0-9a-f]+)(modified)?-py3")
"""The part of the name of a wheel that a launcher has made (`launching.shipping`)."""
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy")


def lines(modules: Iterable[str] = ()) -> Iterator[str]:
    """Lines about the code that should be the same on all hosts of a run.

    Args:
      modules: names of imported modules, or paths of `.py` files, in addition to our own.
    """
    yield f"python {platform.python_version()}"
    yield from (f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    for file in _files():
        yield f"{file.relative_to(_PACKAGE.parent)} {_digest(file)}"
    for name in modules:
        path = name if name.endswith(".py") else getattr(sys.modules.get(name), "__file__", None)
        if path and Path(path).is_file():
            yield f"{name} {_digest(Path(path))}"


def versions() -> dict[str, str]:
    """The versions of this package and of Python."""
    version = importlib.metadata.version("t5x_like") if is_installed() else "not installed"
    return {"t5x_like": version, "python": platform.python_version()}


def is_installed() -> bool:
    """Whether pip knows this package: a checkout on `PYTHONPATH` runs without that."""
    return any(importlib.metadata.distributions(name="t5x_like"))


def checkout() -> Path | None:
    """The checkout that this code is run from; None if it is installed."""
    root = _PACKAGE.parent
    return root if (root / "setup.py").is_file() and (root / "gin").is_dir() else None


def commit() -> dict[str, str | bool | None]:
    """The `commit` of the code, and whether files are `modified`; None where it is not known."""
    root = checkout()
    if root is None:
        return _installed()
    if not shutil.which("git"):
        return {"commit": None, "modified": None}
    git = ["git", "-C", str(root)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return {"commit": None, "modified": None}
    status = [*git, "status", "--porcelain", "--", *SOURCES]
    changed = subprocess.run(status, capture_output=True, text=True, check=False).stdout
    return {"commit": head.stdout.strip(), "modified": bool(changed.strip())}


def _installed() -> dict[str, str | bool | None]:
    """The version that pip recorded: git's commit, or the one in the name of our own wheel."""
    try:
        text = importlib.metadata.distribution("t5x_like").read_text("direct_url.json")
        origin = json.loads(text or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        origin = {}
    if pinned := origin.get("vcs_info", {}).get("commit_id"):
        return {"commit": pinned, "modified": False}
    tag = _WHEEL.search(origin.get("url", ""))
    if tag is None or not int(tag[1], 16):
        return {"commit": None, "modified": None}
    return {"commit": tag[1], "modified": bool(tag[2])}


def digest() -> str:
    """A digest of all our files: equal code has an equal one, whatever its commit."""
    files = (f"{file.relative_to(_PACKAGE)} {_digest(file)}" for file in _files())
    return hashlib.sha256("\n".join(files).encode()).hexdigest()[:16]


def _files() -> list[Path]:
    return sorted(_PACKAGE.rglob("*.py"))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]

"""Imports of optional dependencies: errors name what installs them, TensorFlow's is silent."""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from types import ModuleType

_NOISE = re.compile(
    rb"WARNING: All log messages before absl|I\d{4} |E\d{4} .*cuInit|To enable the following instr"
)
"""How lines begin that TensorFlow writes at every import and that ask for nothing."""


class MissingExtraError(ImportError):
    """A package is missing that t5x_like does not install, or not without an extra."""


def require(module: str, extra: str | None, *, purpose: str = "this") -> ModuleType:
    """Imports `module`.

    Args:
      module: the dotted name of the module.
      extra: the extra of t5x_like that installs it; None: none does.
      purpose: its purpose, as the subject of a sentence: "reading Parquet".

    Raises:
      MissingExtraError: its package is not installed. Errors inside the package pass unchanged.
    """
    package = module.partition(".")[0]
    quiet_tensorflow()
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        wanted = f"'t5x_like[{extra}]'" if extra else package
        raise MissingExtraError(f"{purpose} needs {package}: pip install {wanted}") from error
    if module == "tensorflow":
        # TensorFlow only reads text here, and would take the memory of the GPUs that JAX uses.
        with contextlib.suppress(RuntimeError), _without_noise():
            # RuntimeError: a user's module has used TensorFlow before.
            imported.config.set_visible_devices([], "GPU")
    return imported


def quiet_tensorflow() -> None:
    """Makes the first import of TensorFlow silent, whoever imports it; call it before."""
    if "tensorflow" not in sys.modules and not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow once, and hides the noise of its import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_silently(module: ModuleType) -> None:
            with _without_noise():
                execute(module)

        spec.loader.exec_module = execute_silently  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Holds standard error back, then gives all but the noise; all of it after an error.

    TensorFlow's libraries write to the descriptor, so that no setting of Python or its own reaches
    them.
    """
    sys.stderr.flush()
    descriptor, failed = os.dup(2), True
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
            failed = False
        finally:
            sys.stderr.flush()
            os.dup2(descriptor, 2)
            os.close(descriptor)
            held.seek(0)
            lines = [line for line in held if failed or not _NOISE.match(line)]
            os.write(2, b"".join(lines))

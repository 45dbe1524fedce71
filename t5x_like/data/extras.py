"""Imports of optional dependencies, with an error that names the extra which installs them."""

from __future__ import annotations

import contextlib
import importlib
from types import ModuleType


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
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        wanted = f"'t5x_like[{extra}]'" if extra else package
        raise MissingExtraError(f"{purpose} needs {package}: pip install {wanted}") from error
    if module == "tensorflow":
        # TensorFlow only reads text here, and would take the memory of the GPUs that JAX uses.
        with contextlib.suppress(RuntimeError):  # a user's module has used TensorFlow before
            found.config.set_visible_devices([], "GPU")
    return found

"""Optional dependencies: importing one, or saying in one line which extra brings it."""

from __future__ import annotations

import contextlib
import importlib
from types import ModuleType


class MissingExtraError(ImportError):
    """A feature needs a package that only an extra of t5x_like installs."""


def require(module: str, extra: str, *, purpose: str = "this") -> ModuleType:
    """Imports `module`.

    Args:
      module: dotted name.
      extra: the extra of t5x_like that installs it.
      purpose: what it is for, as the subject of a sentence: "reading Parquet".

    Raises:
      MissingExtraError: its package is not installed. Errors inside it pass unchanged.
    """
    package = module.partition(".")[0]
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingExtraError(
            f"{purpose} needs {package}: pip install 't5x_like[{extra}]'"
        ) from error
    if module == "tensorflow":
        # It only reads text here, and would take the memory of GPUs that JAX trains on.
        with contextlib.suppress(RuntimeError):  # a user's module has used it before
            found.config.set_visible_devices([], "GPU")
    return found

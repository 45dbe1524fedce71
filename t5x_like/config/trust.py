"""Checks what the configuration of a directory names before gin imports and calls it.

The directory of a run or of imported weights may come from anyone. Its configuration may name
classes and functions of the modules that make up a run, and of modules that the user names on the
command line.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection

from jax.nn import initializers

from t5x_like.config import gin_text

_PACKAGES = (
    "t5x_like.layers",
    "t5x_like.models",
    "t5x_like.objectives",
    "t5x_like.runs.completers",
)
_MODULES = frozenset(
    [
        "t5x_like.runs.init_from",
        "t5x_like.config.presets",
        "t5x_like.runs.run",
        "t5x_like.data.rows.feature_converters",
        "t5x_like.data.rows.task_rows",
        "t5x_like.data.dataset",
        "t5x_like.data.corpora.user_corpus",
        "t5x_like.data.vocabulary_choice",
        "t5x_like.core.partitioning",
        "t5x_like.training.optimization.methods.lion",
        "t5x_like.training.optimization.methods.muon",
        "t5x_like.training.optimization.methods.scaled_adamw",
        "t5x_like.training.optimization.methods.stable_adamw",
        "t5x_like.training.optimization.optimizers",
        "t5x_like.training.optimization.schedules",
    ]
)
"""Modules whose public classes and functions make parts of a run and run no other code."""
_MAKERS = ("t5x_like.training.optimization.", "t5x_like.core.partitioning.")
"""The beginnings of the paths of functions that a configuration may call.

Others it may only refer to, as a model does to its activation: some take time and memory by their
arguments.
"""

_INITIALIZERS = ("flax.nnx.initializers", "jax.nn.initializers", "jax._src.nn.initializers")
"""Three names of one module; a configuration imports it as `nnx.initializers`."""


class UntrustedError(ValueError):
    """A configuration names code that its reader has not allowed."""


def check(text: str, *, where: str, modules: Collection[str] = ()) -> None:
    """Refuses gin text that names more than it may; imports only modules of t5x_like.

    Args:
      text: the configuration.
      where: its place, for the message.
      modules: dotted names of modules that the user allows.

    Raises:
      UntrustedError: the text includes a file, or names a module or function that is not allowed.
    """
    try:
        parsed = gin_text.read(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise UntrustedError(f"{where} is damaged: {reason}") from error
    if parsed.includes:
        raise UntrustedError(
            f"{where} includes {parsed.includes[0]!r}, which a saved configuration never does"
        )
    for module in parsed.modules:
        if not _ours(module) and module not in modules:
            if module.startswith("t5x_like."):
                raise UntrustedError(
                    f"{where} names module {module!r}, which is not a part of a run in this "
                    "version: an earlier version of t5x_like may have written it, and opens it"
                )
            raise UntrustedError(
                f"{where} names module {module!r}, which is not of t5x_like, and opening a "
                f"directory must not run its code: if you trust it, add --module {module}"
            )
    for path in parsed.named:
        module, _, name = path.rpartition(".")
        if not (_ours(module) or module in modules) or not _defines(module, name):
            raise UntrustedError(
                f"{where} names {path!r}, which is not a public class or function of the parts of "
                "a run: it is not one that this version of t5x_like wrote"
            )

    for path in map(parsed.full_path, parsed.calls):
        module, _, name = path.rpartition(".")
        if module not in (*modules, *_INITIALIZERS) and not path.startswith(_MAKERS):
            thing = getattr(importlib.import_module(module), name)
            if not isinstance(thing, type):
                raise UntrustedError(
                    f"{where} calls the function {path!r}, which makes no part of a run: it is not "
                    "one that this version of t5x_like wrote"
                )


def modules() -> list[str]:
    """Dotted names of the modules of t5x_like that a configuration may name."""
    return [
        *sorted(_MODULES),
        *(
            module_info.name
            for package in _PACKAGES
            for module_info in pkgutil.walk_packages(
                importlib.import_module(package).__path__, f"{package}."
            )
            if not module_info.ispkg
        ),
    ]


def _ours(module: str) -> bool:
    packages = tuple(f"{package}." for package in _PACKAGES)
    return module in (*_MODULES, *_INITIALIZERS, "flax.nnx") or module.startswith(packages)


def _defines(module: str, name: str) -> bool:
    """Whether the module itself defines `name`, and does not only import it, as it may `os`."""
    names: tuple[str, ...]
    if module in _INITIALIZERS:
        thing, names = getattr(initializers, name, None), _INITIALIZERS
    else:
        try:
            thing, names = getattr(importlib.import_module(module), name, None), (module,)
        except ImportError:
            return False
    is_own = getattr(thing, "__module__", None) in names
    return is_own and callable(thing) and not name.startswith("_")

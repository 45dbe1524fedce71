"""The user's modules, imported so that they register their tasks.

Only the user's own command and code name modules here. What a file says names none.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from t5x_like.data import extras

_named: set[str] = set()


def import_module(module: str) -> str:
    """Imports a module by dotted name, or a `.py` file by path, so that it registers its tasks.

    A module registers them while it is imported, or in its function `register_tasks`, which is
    called here each time. With the function, other modules can import it without SeqIO.

    Returns:
      The name of the module in Python.

    Raises:
      ValueError: there is no such module or file.
    """
    extras.quiet_tensorflow()
    name = _import(module)
    _named.add(name)
    register = getattr(sys.modules[name], "register_tasks", None)
    if register is not None:
        register()
    return name


def named(name: str) -> ModuleType | None:
    """The module with this name in Python, if `import_module` was asked for it; None otherwise."""
    return sys.modules.get(name) if name in _named else None


def _import(module: str) -> str:
    """Imports a module by dotted name or by path, and returns its name in Python."""
    path = Path(module)
    if path.suffix != ".py":
        # The path of a console script begins with the script's folder, not the current one.
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"MIXTURE_OR_TASK_MODULE={module!r}: {error} (looked in this folder and on "
                "PYTHONPATH; a file's path, ending in .py, works too)"
            ) from error
        return module
    if not path.is_file():
        raise ValueError(f"MIXTURE_OR_TASK_MODULE={module!r}: no such file in {Path.cwd()}")
    if (imported := sys.modules.get(path.stem)) is not None:
        if Path(getattr(imported, "__file__", None) or "").resolve() != path.resolve():
            raise ValueError(
                f"MIXTURE_OR_TASK_MODULE={module!r}: Python has a module {path.stem!r} already; "
                "give the file another name"
            )
        return path.stem
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[path.stem])
    except BaseException:
        del sys.modules[path.stem]
        raise
    return path.stem

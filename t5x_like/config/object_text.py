"""Gin text that makes an object of t5x_like again, such as a model or a run."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Collection, Sequence
from typing import Any


def model_text(
    make: functools.partial, *, title: str, adapt: functools.partial | None = None
) -> str:
    """Gin text in which the macro MODEL makes the same model as `make`, and ADAPT adapts it.

    Args:
      make: a partial of a class of t5x_like. Its arguments are literals, functions, dataclass
        objects and further partials.
      title: the comment at the beginning.
      adapt: a partial of a function of t5x_like; None for none.

    Raises:
      ValueError: an argument is of another kind, which gin text cannot express.
    """
    writer = Writer()
    parts = {"MODEL": make, **({"ADAPT": adapt} if adapt else {})}
    return writer.text(title, [f"{name} = {writer.reference(x)}" for name, x in parts.items()])


class Writer:
    """A writer of gin text, which collects imports and bindings."""

    def __init__(self) -> None:
        self.modules: set[tuple[str, str]] = set()
        self.bindings: list[str] = []
        self._written: dict[str, list[str]] = {}
        self._scopes = 0

    def text(self, title: str, first: Sequence[str]) -> str:
        """The whole text: a comment, imports, the lines `first`, and their bindings."""
        imports = [
            f"from {package} import {name}" if package else f"import {name}"
            for package, name in sorted(self.modules)
        ]
        head = [f"# {title}", "from __gin__ import dynamic_registration", ""]
        return "\n".join([*head, *imports, "", *first, *self.bindings, ""])

    def reference(self, value: Any) -> str:
        """Gin text for a value, whose imports and bindings are collected."""
        if isinstance(value, functools.partial):
            return self._bound(value.func, _arguments(value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            init_fields = [field for field in dataclasses.fields(value) if field.init]
            fields = {field.name: getattr(value, field.name) for field in init_fields}
            usual = {field.name for field in init_fields if fields[field.name] == field.default}
            return self._bound(type(value), fields, usual) + "()"
        if (call := getattr(value, "made_by", None)) is not None:
            return self._bound(call.func, _arguments(call)) + "()"
        if isinstance(value, tuple | list):
            parts = "".join(f"{self.reference(part)}, " for part in value)
            return f"[{parts}]" if isinstance(value, list) else f"({parts})"
        if isinstance(value, dict):
            items = [f"{name!r}: {self.reference(part)}" for name, part in value.items()]
            return f"{{{', '.join(items)}}}"
        if callable(value):
            return f"@{self._selector(value)}"
        try:
            if ast.literal_eval(repr(value)) == value:
                return repr(value)
        except (SyntaxError, ValueError):
            pass
        raise ValueError(f"{value!r} cannot be written to a gin file")

    def _bound(self, target: Any, arguments: dict[str, Any], usual: Collection[str] = ()) -> str:
        """A reference to `target` with these arguments; the `usual` ones are left out.

        If `target` already has other arguments, the reference gets a new scope with all arguments.
        """
        selector = self._selector(target)
        unusual = {name: value for name, value in arguments.items() if name not in usual}
        lines = [f"{name} = {self.reference(value)}" for name, value in unusual.items()]
        if self._written.setdefault(selector, lines) != lines:
            lines = [f"{name} = {self.reference(value)}" for name, value in arguments.items()]
            self._scopes += 1
            selector = f"part_{self._scopes}/{selector}"
        new = [f"{selector}.{line}" for line in lines]
        self.bindings += [line for line in new if line not in self.bindings]
        return f"@{selector}"

    def _selector(self, target: Any) -> str:
        if "<" in target.__qualname__ or "." in target.__qualname__:
            raise ValueError(f"{target.__qualname__} has no name that a gin file could import")
        if target.__module__ == "__main__":
            raise ValueError(
                f"{target.__qualname__} is defined in a script or a notebook, which no gin file "
                "can import: move it to a module of its own"
            )
        package, _, module = target.__module__.rpartition(".")
        self.modules.add((package, module))
        return f"{module}.{target.__name__}"


def _arguments(partial: functools.partial) -> dict[str, Any]:
    """The arguments of a partial by name, from the constructor's signature if it makes a class."""
    of_class = isinstance(partial.func, type)
    constructor = partial.func.__init__ if of_class else partial.func  # type: ignore[misc]
    owner = (None,) if of_class else ()
    bound = inspect.signature(constructor).bind_partial(*owner, *partial.args, **partial.keywords)
    return dict(list(bound.arguments.items())[len(owner) :])

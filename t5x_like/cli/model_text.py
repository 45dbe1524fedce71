"""A model's constructor and its arguments as gin text, which builds the model again."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any


def model_text(make: functools.partial, *, title: str) -> str:
    """Gin text in which the macro MODEL is what `make` calls, with its arguments.

    Args:
      make: of one of our classes, with arguments that are literals, functions, dataclass objects
        and further partials of ours.
      title: the text's comment.
    """
    writer = _Writer()
    model = writer.reference(make, scope="")
    imports = [f"from {module} import {name}" for module, name in sorted(writer.modules)]
    return "\n".join(
        [
            f"# {title}",
            "from __gin__ import dynamic_registration",
            "",
            *imports,
            "",
            f"MODEL = {model}",
            *writer.bindings,
            "",
        ]
    )


class _Writer:
    """Collects bindings. A class that is configured twice gets the argument's name as scope."""

    def __init__(self) -> None:
        self.modules: set[tuple[str, str]] = set()
        self.bindings: list[str] = []
        self._written: dict[str, list[str]] = {}

    def reference(self, value: Any, *, scope: str) -> str:
        if isinstance(value, functools.partial):
            return self._bound(value.func, _arguments(value), scope=scope)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {
                field.name: getattr(value, field.name)
                for field in dataclasses.fields(value)
                if getattr(value, field.name) != field.default
            }
            return self._bound(type(value), fields, scope=scope) + "()"
        if callable(value):
            return f"@{self._selector(value)}"
        return repr(value)

    def _bound(self, target: Any, arguments: dict[str, Any], *, scope: str) -> str:
        selector = self._selector(target)
        values = {k: self.reference(v, scope=k) for k, v in arguments.items()}
        lines = [f"{k} = {v}" for k, v in values.items()]
        if selector in self._written and self._written[selector] != lines:
            selector = f"{scope}/{selector}"
        if selector not in self._written:
            self._written[selector] = lines
            self.bindings += [f"{selector}.{line}" for line in lines]
        return f"@{selector}"

    def _selector(self, target: Any) -> str:
        package, _, module = target.__module__.rpartition(".")
        self.modules.add((package, module))
        return f"{module}.{target.__name__}"


def _arguments(made: functools.partial) -> dict[str, Any]:
    """By name. The signature of an NNX module's class tells nothing: its constructor's does."""
    of_class = isinstance(made.func, type)
    constructor = made.func.__init__ if of_class else made.func  # type: ignore[misc]
    owner = (None,) if of_class else ()
    given = inspect.signature(constructor).bind_partial(*owner, *made.args, **made.keywords)
    return dict(list(given.arguments.items())[len(owner) :])

"""A model's constructor and its arguments as gin text, which builds the model again."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any


def model_text(make: functools.partial, *, title: str) -> str:
    """Gin text in which the macro MODEL is what `make` calls, with its arguments.

    Args:
      make: of one of our classes; arguments by name: literals, functions, dataclass objects and
        further partials of ours.
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
            return self._bound(value.func, value.keywords, scope=scope)
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

"""What gin text says, read without importing or calling anything that it names."""

from __future__ import annotations

import dataclasses
import tokenize
from collections.abc import Iterator
from typing import Any, NamedTuple

from gin import config_parser


class Binding(NamedTuple):
    """`scope/selector.parameter = value`; a macro has its name as selector and no parameter."""

    scope: str
    selector: str
    parameter: str

    def __str__(self) -> str:
        scoped = f"{self.scope}/{self.selector}" if self.scope else self.selector
        return f"{scoped}.{self.parameter}" if self.parameter else scoped


class Macro(str):
    """The name of a macro, where a value refers to it."""


@dataclasses.dataclass
class GinText:
    """The statements of a gin file, in order.

    Attributes:
      imports: {name in the text: the module, or first part of one, that it stands for}.
      modules: everything that is imported.
      bindings: what is set.
      values: literals of bindings; a `Macro` for `%NAME`, None for other references.
      references: what values refer to by `@`, without scopes.
      includes: other files.
    """

    imports: dict[str, str] = dataclasses.field(default_factory=dict)
    modules: list[str] = dataclasses.field(default_factory=list)
    bindings: list[Binding] = dataclasses.field(default_factory=list)
    values: dict[Binding, Any] = dataclasses.field(default_factory=dict)
    references: list[str] = dataclasses.field(default_factory=list)
    includes: list[str] = dataclasses.field(default_factory=list)

    @property
    def named(self) -> list[str]:
        """What is to be configured or called, each as the full path that its import gives it."""
        configured = [binding.selector for binding in self.bindings if binding.parameter]
        return list(dict.fromkeys(map(self.full_path, [*configured, *self.references])))

    def full_path(self, selector: str) -> str:
        """`t5x_like.models.bert.Config` of `bert.Config`; what is not imported stays as it is."""
        first, dot, rest = selector.partition(".")
        return f"{self.imports.get(first, first)}{dot}{rest}"


class _Recorder(config_parser.ParserDelegate):
    """Stands for the values of a text, which are of no interest here, and notes references."""

    def __init__(self, text: GinText) -> None:
        self._text = text

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Any:
        self._text.references.append(scoped_configurable_name.rpartition("/")[2])
        return None

    def macro(self, macro_name: str) -> Any:
        return Macro(macro_name)


def read(text: str) -> GinText:
    """The statements of gin text.

    Raises:
      SyntaxError: it is no gin text.
    """
    found = GinText()
    for statement in _statements(text, _Recorder(found)):
        match statement:
            case config_parser.ImportStatement():
                if not statement.module.startswith("__gin__"):
                    bound = statement.bound_name()
                    whole = statement.is_from or statement.alias
                    found.imports[bound] = statement.module if whole else bound
                    found.modules.append(statement.module)
            case config_parser.BindingStatement():
                scope, selector, parameter, value = statement[:4]
                if not parameter and scope:  # a macro's name may hold slashes
                    scope, selector = "", f"{scope}/{selector}"
                found.bindings.append(Binding(scope or "", selector, parameter or ""))
                found.values[found.bindings[-1]] = value
            case config_parser.IncludeStatement():
                found.includes.append(statement.filename)
            case config_parser.BlockDeclaration():
                found.references.append(statement.selector)
    return found


def _statements(text: str, recorder: _Recorder) -> Iterator[Any]:
    """The statements that gin parses; for text without an end the tokenizer has its own error."""
    try:
        yield from config_parser.ConfigParser(text, recorder)
    except tokenize.TokenError as error:
        raise SyntaxError(str(error.args[0])) from error

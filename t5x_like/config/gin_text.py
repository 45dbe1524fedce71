"""Reads the statements of gin text; imports and calls nothing."""

from __future__ import annotations

import dataclasses
import tokenize
from collections.abc import Iterator
from typing import Any, NamedTuple

from gin import config_parser


class Binding(NamedTuple):
    """The left side of `scope/selector.parameter = value`.

    A macro has its name as selector, and no parameter.
    """

    scope: str
    selector: str
    parameter: str

    def __str__(self) -> str:
        scoped = f"{self.scope}/{self.selector}" if self.scope else self.selector
        return f"{scoped}.{self.parameter}" if self.parameter else scoped


class Macro(str):
    """The name of a macro that a value refers to."""


class Reference(str):
    """The name, with its scope, of what a value refers to by `@`."""


@dataclasses.dataclass
class GinText:
    """The statements of a gin file, in order.

    Attributes:
      imports: names in the text, and the module (or its first part) that each stands for.
      modules: all modules that are imported.
      bindings: the left sides of the bindings.
      values: literals of bindings; a `Macro` for `%NAME`, a `Reference` for `@NAME`.
      references: what values refer to by `@`, without scopes.
      calls: those of them that are called when the value is made: `@NAME()`.
      includes: the files that are included.
    """

    imports: dict[str, str] = dataclasses.field(default_factory=dict)
    modules: list[str] = dataclasses.field(default_factory=list)
    bindings: list[Binding] = dataclasses.field(default_factory=list)
    values: dict[Binding, Any] = dataclasses.field(default_factory=dict)
    references: list[str] = dataclasses.field(default_factory=list)
    calls: list[str] = dataclasses.field(default_factory=list)
    includes: list[str] = dataclasses.field(default_factory=list)

    @property
    def named(self) -> list[str]:
        """The full paths of what is configured or called."""
        configured = [binding.selector for binding in self.bindings if binding.parameter]
        return list(dict.fromkeys(map(self.full_path, [*configured, *self.references])))

    def full_path(self, selector: str) -> str:
        """The full path of a selector, such as `t5x_like.models.bert.Config` for `bert.Config`.

        A selector that is not imported stays unchanged.
        """
        first, dot, rest = selector.partition(".")
        return f"{self.imports.get(first, first)}{dot}{rest}"


class _Recorder(config_parser.ParserDelegate):
    """A delegate of gin's parser that collects references and calls nothing."""

    def __init__(self, text: GinText) -> None:
        self._text = text

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Any:
        name = scoped_configurable_name.rpartition("/")[2]
        self._text.references.append(name)
        if evaluate:
            self._text.calls.append(name)
        return Reference(scoped_configurable_name)

    def macro(self, macro_name: str) -> Any:
        return Macro(macro_name)


def read(text: str) -> GinText:
    """The statements of gin text.

    Raises:
      SyntaxError: this is not gin text.
    """
    parsed = GinText()
    for statement in _statements(text, _Recorder(parsed)):
        match statement:
            case config_parser.ImportStatement():
                if not statement.module.startswith("__gin__"):
                    bound = statement.bound_name()
                    whole = statement.is_from or statement.alias
                    parsed.imports[bound] = statement.module if whole else bound
                    parsed.modules.append(statement.module)
            case config_parser.BindingStatement():
                scope, selector, parameter, value = statement[:4]
                if not parameter and scope:  # a macro's name may hold slashes
                    scope, selector = "", f"{scope}/{selector}"
                parsed.bindings.append(Binding(scope or "", selector, parameter or ""))
                parsed.values[parsed.bindings[-1]] = value
            case config_parser.IncludeStatement():
                parsed.includes.append(statement.filename)
            case config_parser.BlockDeclaration():
                parsed.references.append(statement.selector)
    return parsed


def _statements(text: str, recorder: _Recorder) -> Iterator[Any]:
    """The statements that gin parses; errors of what it calls become SyntaxErrors."""
    try:
        yield from config_parser.ConfigParser(text, recorder)
    except (tokenize.TokenError, TypeError) as error:  # the second: a key that is a list
        raise SyntaxError(str(error.args[0])) from error

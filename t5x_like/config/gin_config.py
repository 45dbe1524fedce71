"""Reads gin files and `--gin.NAME=value` flags; errors give the nearest valid names."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import re
import tokenize
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gin

from t5x_like.config import gin_advice, gin_files, gin_text, t5x_names, trust
from t5x_like.config.gin_files import ConfigError as ConfigError
from t5x_like.config.settings import SETTINGS
from t5x_like.core.spelling import nearest

_SAVED = "# The whole configuration of a run."


class UserSetting(NamedTuple):
    """A setting of the user and the gin file that holds it; None for the command line."""

    setting: gin_text.Binding
    file: str | None


_given: list[UserSetting] = []
_shipped: dict[str, Any] = {}


def load(
    files: Sequence[str], bindings: Sequence[str] = (), extra_folders: Sequence[str] = ()
) -> None:
    """Replaces the process's gin configuration by these files, then these bindings, in order.

    Args:
      files: names on the search path; later files override earlier ones.
      bindings: `NAME=value` or `module.Thing.parameter=value`, with values in Python syntax.
      extra_folders: folders that are searched before the package's own.

    Raises:
      ConfigError: a file, name or parameter does not exist, or a value is not Python.
    """
    paths = [gin_files.find(name, extra_folders) for name in files]
    for path in paths:
        gin_files.check_whole(path)
        t5x_names.refuse(path, extra_folders)
    _given.clear()
    _shipped.clear()
    _forget()
    gin.config._LOCATION_PREFIXES[:] = [str(p) for p in gin_files.search_path(extra_folders)]
    # Gin's own readers cannot read tables of sizes.
    gin.config._FILE_READERS[:] = [(gin_files.open_file, gin_files.readable)]
    for path in paths:
        _translated(gin.parse_config_file, str(path), where=f"in {path}")
        _given.extend(_own_settings(path, extra_folders))
        if not _given:
            _shipped.update(
                {
                    name: values["value"]
                    for (name, selector), values in gin.config._CONFIG.items()
                    if selector == "gin.macro"
                }
            )
    bind(bindings)


def bind(bindings: Sequence[str]) -> None:
    """Overrides the configuration.

    Raises:
      ConfigError: a macro is in no file, a parameter does not exist, or a value is not Python.
    """
    macros = {name for name, selector in gin.config._CONFIG if selector == "gin.macro"}
    for binding in bindings:
        name = binding.partition("=")[0].strip()
        where = f"in --gin.{binding}"
        if re.fullmatch(r"\w+", name) and name not in macros:
            meant = t5x_names.advice(name, t5x_names.MACROS) or nearest(name, sorted(macros))
            if "MODEL_DIR" not in macros:
                meant = "; add --gin_file=runs/pretrain.gin, which makes a run of a model"
            words = [f" (--{w})" for w, setting in SETTINGS.items() if setting.target == name]
            raise ConfigError(f"no gin macro {name!r}{''.join(words)} {where}{meant}")
        try:
            _translated(gin.parse_config, _with_import(binding), where=where)
        except ConfigError as error:
            if meant := t5x_names.advice_on(*name.rpartition(".")[::2]):
                raise ConfigError(f"no {name} {where}{meant}") from error
            raise
        _given.extend(UserSetting(statement, None) for statement in gin_text.read(binding).bindings)


def _forget() -> None:
    """Clears gin's configuration, and what gin registered because earlier ones named it.

    Otherwise gin's name of a class, and so the text of a saved configuration, would depend on which
    file named the class first in this process. What a module registers by itself, as T5's and
    SeqIO's do, stays: it is registered once, when the module is first imported.
    """
    gin.clear_config()
    for selector, known in [*gin.config._REGISTRY.items()]:
        if known.import_source is not None:
            gin.config._REGISTRY.pop(selector)
            for registered in (known.wrapped, known.wrapper):
                gin.config._INVERSE_REGISTRY.pop(registered, None)


def given_settings() -> list[UserSetting]:
    """The user's settings: from the command line, and from gin files outside the package."""
    return list(_given)


def default_value(macro: str) -> Any:
    """The value of a macro in the package's own files, before any setting of the user; or None."""
    return _shipped.get(macro)


def _own_settings(path: Path, folders: Sequence[str]) -> Iterator[UserSetting]:
    """The settings of a user's file, and of the user's files that it includes.

    A saved configuration yields none: it is complete, so nothing may read some of its settings.
    """
    text = gin_files.read(path)
    if path.resolve().is_relative_to(gin_files.gin_root().resolve()) or text.startswith(_SAVED):
        return
    parsed = gin_text.read(text)
    yield from (UserSetting(binding, str(path)) for binding in parsed.bindings)
    for name in parsed.includes:
        yield from _own_settings(gin_files.find(name, folders), folders)


def _with_import(binding: str) -> str:
    """`binding`, with an import of the module of t5x_like that it names, if no file has one."""
    name, _, value = binding.partition("=")
    scope, slash, selector = name.strip().rpartition("/")
    module, _, rest = selector.rpartition(".")
    module, _, configurable = module.rpartition(".")
    if not module or gin.config._REGISTRY.matching_selectors(f"{module}.{configurable}"):
        return binding
    named = [name for name in trust.modules() if name == module or name.endswith(f".{module}")]
    if len(named) != 1:
        return binding
    attributes = vars(importlib.import_module(named[0]))
    if configurable not in attributes:
        known = [name for name, x in attributes.items() if getattr(x, "__module__", "") == named[0]]
        advice = nearest(configurable, known)
        raise ConfigError(f"no {configurable} in {named[0]}{advice} in --gin.{binding}")
    package, _, leaf = named[0].rpartition(".")
    return (
        f"from __gin__ import dynamic_registration\nfrom {package} import {leaf}\n"
        f"{scope}{slash}{leaf}.{configurable}.{rest} = {value}"
    )


def load_text(
    text: str, *, where: str = "a saved configuration", modules: Collection[str] = ()
) -> None:
    """Replaces the process's gin configuration by `text`, which may name only trusted modules.

    Raises:
      UntrustedError: it names a module that is neither trusted nor in `modules` (`trust.check`).
    """
    trust.check(text, where=where, modules=modules)
    _replace(text, where=f"in {where}")


def add_text(text: str, *, where: str) -> None:
    """Adds gin text to the process's configuration, over what it says already."""
    _translated(gin.parse_config, text, where=f"in {where}")


def _replace(text: str, *, where: str = "") -> None:
    _forget()
    _translated(gin.parse_config, text, where=where)


def config_text() -> str:
    """The whole configuration as gin text, which gin can read again."""
    return f"{_SAVED}\n{gin.config_str(max_line_length=100)}"


@contextlib.contextmanager
def temporary_configuration() -> Iterator[None]:
    """A context that restores the process's gin configuration when it ends."""
    text, settings, usual = config_text(), [*_given], {**_shipped}
    try:
        yield
    finally:
        _replace(text)
        _given[:] = settings
        _shipped.clear()
        _shipped.update(usual)


def build(configurable: Callable[..., Any]) -> Any:
    """Calls `configurable` with its gin bindings.

    Raises:
      ConfigError: a part that the bindings refer to is missing or fails to build.
    """
    return call(lambda: gin.get_configurable(configurable)())


def without_gin(value: Any) -> Any:
    """`value` with its gin bindings filled in, so that it no longer depends on gin.

    Gin's reference to a class or function looks up its bindings in the process's configuration at
    every call. Here it becomes a `functools.partial` with these bindings, so that another
    configuration can be loaded before the call.
    """
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(map(without_gin, value))
    if isinstance(value, Mapping):
        return {name: without_gin(part) for name, part in value.items()}
    if isinstance(value, functools.partial):
        keywords = {name: without_gin(part) for name, part in value.keywords.items()}
        return functools.partial(without_gin(value.func), *map(without_gin, value.args), **keywords)
    if (known := _configurable(value)) is not None:
        bound = without_gin(call(lambda: gin.get_bindings(known.selector)))
        # Gin counts the bindings as used, as if it had called the function.
        gin.config._OPERATIVE_CONFIG.setdefault(("", known.selector), {}).update(bound)
        return functools.partial(known.wrapped, **bound) if bound else known.wrapped
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        fields = {name: getattr(value, name) for name in names}
        new = {name: without_gin(part) for name, part in fields.items()}
        if any(new[name] is not fields[name] for name in fields):
            return dataclasses.replace(value, **new)
    return value


def _configurable(value: Any) -> Any:
    """Gin's entry for a class or function that a configuration refers to; None for other values.

    Gin replaces a class by a subclass, which its own look-up does not find.
    """
    if not callable(value):
        return None
    entries = [known for _, known in gin.config._REGISTRY.items()]
    return next((known for known in entries if known.wrapper is value), None)


def macro(name: str) -> Any:
    """The value of macro `name`; a `@reference` without a call is a function.

    Raises:
      ConfigError: there is no such macro, or a part that it refers to is missing or fails to build.
    """
    arguments = call(lambda: gin.get_bindings(f"{name}/gin.macro"))
    if "value" not in arguments:
        raise ConfigError(f"the configuration does not set {name}: add a gin file that does")
    return arguments["value"]


def description(name: str) -> str:
    """The call that makes macro `name`, such as `schedules.linear(warmup_steps=100)`.

    Macros that are numbers are replaced by their values.

    Raises:
      ConfigError: there is no such macro.
    """
    value = macro(name)
    reference = call(lambda: gin.get_bindings(f"{name}/gin.macro", resolve_references=False))
    if not isinstance(reference["value"], gin.config.ConfigurableReference):
        return repr(value)
    selector = str(reference["value"]).strip("@()")
    arguments = call(lambda: gin.get_bindings(selector, resolve_references=False))
    shown = ", ".join(f"{argument}={_number(x)}" for argument, x in arguments.items())
    return f"{selector}({shown})"


def _number(value: Any) -> str:
    """A value as gin writes it; a macro that is a number is written as its value."""
    text = str(value) if isinstance(value, gin.config.ConfigurableReference) else repr(value)
    number = macro(text[1:]) if text.startswith("%") else None
    return repr(number) if isinstance(number, int | float) else text


def arguments_of(configurable: Callable[..., Any]) -> dict[str, Any]:
    """The arguments that the configuration gives to `configurable`; empty if it is not named."""
    names = {selector for _, selector in gin.config._CONFIG}
    name = f"{configurable.__module__}.{configurable.__qualname__}"
    # If a file imports its module by an alias, gin knows it by the alias.
    known = gin.config._inverse_lookup(configurable)
    name = name if known is None else known.selector
    return call(lambda: gin.get_bindings(name)) if name in names else {}


def construct(configurable: Callable[..., Any], **arguments: Any) -> Any:
    """Calls `configurable` with `arguments`, and with its gin bindings for all others.

    Raises:
      ConfigError: a part that the bindings refer to is missing or fails to build.
    """
    return call(lambda: gin.get_configurable(configurable)(**arguments))


def call(make: Callable[[], Any]) -> Any:
    """The result of `make()`, which calls what gin configures.

    Raises:
      ConfigError: a part that the bindings refer to is missing or fails to build.
    """
    try:
        return make()
    except RecursionError as error:
        raise ConfigError(
            f"settings refer to each other in a circle{gin_advice.circle()}"
        ) from error
    except (TypeError, ValueError, AttributeError, KeyError, RuntimeError) as error:
        # Gin appends the function that it called, with its address in memory.
        message = str(error).partition("\n  In call to configurable")[0].strip()
        raise ConfigError(message) from error


def _translated(parse: Callable[[str], Any], what: str, *, where: str) -> None:
    try:
        parse(what)
    except ConfigError:
        raise
    except (SyntaxError, TypeError, tokenize.TokenError) as error:
        # TypeError: a key that is a list. TokenError: a string without an end.
        if "too many nested" in str(error):  # Python 3.12 counts parentheses
            raise ConfigError(f"too deep nesting {where}") from error
        # Python's message ends with the address of what it could not read.
        reason = str(error).partition("malformed node")[0].partition("\n")[0].strip().rstrip(".")
        raise ConfigError(
            f"not a Python value {where}: {reason}{': ' * bool(reason)}a string needs its own "
            "quotes, as in NAME=\"'text'\""
        ) from error
    except RecursionError as error:
        # Gin's message ends with the statements that it was reading.
        circle = dict.fromkeys(re.findall(r"include '([^']+)'", str(error)))
        reason = (
            f"files include one another ({', '.join(sorted(circle))})"
            if circle
            else "too deep nesting"
        )
        raise ConfigError(f"{reason} {where}") from error
    except NameError as error:
        raise ConfigError(gin_advice.not_imported(str(error), where)) from error
    except ImportError as error:
        named = re.search(r"(?:'|import of )([\w.]+)", str(error))
        name = error.name or (named[1] if named else "")
        meant = nearest(name, trust.modules()) if name.startswith("t5x_like.") else ""
        meant = t5x_names.T5 if name.partition(".")[0] == "t5" else meant
        message = str(error).partition("\n")[0]
        raise ConfigError(f"cannot import {name!r} {where}: {message}{meant}") from error
    except KeyError as error:
        if "Ambiguous" not in str(error):
            raise
        raise ConfigError(gin_advice.ambiguous(str(error), where)) from error
    except (ValueError, AttributeError, OSError) as error:
        message = str(error).split("\n")[0].strip().rstrip(".")
        raise ConfigError(
            f"{message} {where}" + gin_advice.nearest_configurable(message)
        ) from error

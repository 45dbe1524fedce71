"""Objectives in JSON: the class of each by name, and its fields, checked when they are read.

A record may come from anybody. It names only objectives of this package and what they are made of,
and classes of modules that the user has named (`user_modules`).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import math
import pkgutil
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from t5x_like import objectives
from t5x_like.core.protocols.data import Objective
from t5x_like.data import user_modules
from t5x_like.objectives.supervised.text_to_text import TextToText

_PARTS = f"{objectives.__name__}.parts"
"""The package of objectives' parts: geometries, excerpts. No field of an objective holds one."""


def to_json(value: Any) -> Any:
    """A dataclass as its class and fields, a tuple as a list, numbers and text unchanged.

    Raises:
      ValueError: it holds something else, or is an object that `objective` would not read.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {
            "class": _address(kind),
            "fields": {name: to_json(getattr(value, name)) for name in fields},
        }
    if isinstance(value, tuple):
        return [to_json(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"{value!r} cannot be kept in a task record: make the fields of an objective numbers, "
        "text, tuples of these, or frozen dataclasses"
    )


def objective(value: Any, where: str) -> Objective:
    """The objective in the result of `to_json`, after JSON.

    Raises:
      ValueError: a class is not allowed, is not an objective, or has other fields; `where` names
        it.
      KeyError: a class has no name or no fields.
    """
    if value is None:  # in older records, text to text was not an objective
        return TextToText()
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is {reprlib.repr(value)}, which is not an objective")
    kind = _kind(value["class"], where)
    if not callable(inspect.getattr_static(kind, "geometry", None)):
        raise ValueError(f"{where} names {value['class']}, which is not an objective")
    read: Objective = _object(value, where)
    return read


def _address(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


@functools.cache
def _ours() -> Mapping[str, type]:
    """The classes of this package that a record may name, by their addresses."""
    classes: dict[str, type] = {}
    for module in pkgutil.walk_packages(objectives.__path__, f"{objectives.__name__}."):
        if not module.name.startswith(_PARTS):
            classes |= _dataclasses(importlib.import_module(module.name))
    return classes


def _dataclasses(module: types.ModuleType) -> dict[str, type]:
    """The public dataclasses that a module defines, by their addresses."""
    return {
        _address(kind): kind
        for name, kind in vars(module).items()
        if isinstance(kind, type)
        and dataclasses.is_dataclass(kind)
        and kind.__module__ == module.__name__
        and not name.startswith("_")
    }


def _kind(address: Any, where: str) -> type:
    if not isinstance(address, str):
        raise ValueError(f"{where}.class is {reprlib.repr(address)}")
    name = address.partition(":")[0]
    if name.startswith("t5x_like."):
        known = _ours()
    else:
        module = user_modules.named(name)
        if module is None:
            raise ValueError(
                f"{where} names {address}: if you trust its module, add --module {name} "
                f"(MIXTURE_OR_TASK_MODULE='{name}')"
            )
        known = _dataclasses(module)
    if address not in known:
        raise ValueError(f"{where} names {address}, which is not an objective or part of one")
    return known[address]


def _object(value: Mapping[str, Any], where: str) -> Any:
    kind, fields = _kind(value["class"], where), value["fields"]
    known = {field.name: field for field in dataclasses.fields(kind) if field.init}
    if not isinstance(fields, dict) or fields.keys() - known.keys():
        raise ValueError(f"{where} has other fields than {kind.__name__}: {reprlib.repr(fields)}")
    hints = _hints(kind)
    arguments = {
        name: _value(field_value, hints[name], f"{where}.{name}")
        for name, field_value in fields.items()
    }
    try:
        return kind(**arguments)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"{where}: {error}") from error


def _hints(kind: type) -> dict[str, Any]:
    """The types of the fields; `object` in place of names that only type checkers import."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            return typing.get_type_hints(kind, localns=unknown)
        except NameError as error:
            unknown[str(error.name)] = object


def _value(value: Any, hint: Any, where: str) -> Any:
    """A JSON value of the type of its field: text, a number, None, a tuple, or an object."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        for option in inside:
            try:
                return _value(value, option, where)
            except ValueError as error:
                if option is inside[-1]:
                    raise ValueError(str(error)) from error
    any_kind = hint in (object, Any)
    if isinstance(value, dict):
        read = _object(value, where)
        if any_kind or _is_protocol(hint) or (isinstance(hint, type) and isinstance(read, hint)):
            return read
        if origin is Callable and callable(read):
            return read
    elif isinstance(value, list):
        if any_kind or hint is tuple:
            return tuple(_value(part, object, where) for part in value)
        if origin is tuple:
            kinds = inside[:1] * len(value) if inside[1:] == (...,) else inside
            if len(kinds) == len(value):
                return tuple(_value(*pair, where) for pair in zip(value, kinds, strict=True))
    elif value is None:
        if any_kind or hint is types.NoneType:
            return None
    elif isinstance(value, float | int) and not isinstance(value, bool):
        if math.isfinite(value) and (any_kind or hint is float or hint is type(value)):
            return value
    elif any_kind or hint is type(value):
        return value
    raise ValueError(f"{where} is {reprlib.repr(value)}")


def _is_protocol(hint: Any) -> bool:
    """Whether a type names methods alone; `isinstance` would look at attributes of the object."""
    return bool(getattr(hint, "_is_protocol", False))

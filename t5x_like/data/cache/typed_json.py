"""JSON values as dataclasses, checked against the types of their fields."""

from __future__ import annotations

import contextlib
import dataclasses
import reprlib
import types
import typing
from collections.abc import Mapping
from typing import Any


def read(kind: Any, value: Any, where: str) -> Any:
    """A JSON value as a dataclass, mapping, tuple, text or number from 0 on, or a union of these.

    Raises:
      ValueError: it is of another type; `where` names it.
    """
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        if unknown := value.keys() - {field.name for field in dataclasses.fields(kind)}:
            raise ValueError(f"{where} has the field {min(unknown)!r}")
        fields = {name: read(hints[name], part, f"{where}.{name}") for name, part in value.items()}
        with contextlib.suppress(TypeError):  # a field is missing
            return kind(**fields)
    elif origin is types.UnionType:
        return None if value is None else read(inside[0], value, where)
    elif origin is Mapping and isinstance(value, dict):
        return {name: read(inside[1], part, f"{where}.{name}") for name, part in value.items()}
    elif origin is tuple and isinstance(value, list):
        return tuple(read(inside[0], part, where) for part in value)
    elif kind is int:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
            return value
    elif kind is Any or (isinstance(kind, type) and isinstance(value, kind)):
        return value
    raise ValueError(f"{where} is {reprlib.repr(value)}")

"""The configuration of a model that gin makes, whose fields may follow other settings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from t5x_like.config import gin_config, object_text
from t5x_like.core.spelling import nearest

_SPARE = 128


def find(make: Any) -> Any:
    """The configuration (a dataclass) that a constructor gives its model; None if it gives none."""
    config = getattr(make, "keywords", {}).get("config") or next(iter(getattr(make, "args", ())), 0)
    return config if dataclasses.is_dataclass(config) else None


def of(make: Any, directory: str = "") -> Any:
    """Like `find`, where there must be one.

    Args:
      make: the constructor.
      directory: where it is from, for errors; "" for this run.

    Raises:
      ValueError: it gives none.
    """
    config = find(make)
    if config is None:
        raise ValueError(
            f"the model of {directory or 'this run'} has no configuration whose fields could be "
            "others. For INIT_FROM, name its parameters alone with @init_from.InitFrom()"
        )
    return config


def with_fields(make: Any, fields: Mapping[str, Any]) -> Any:
    """A constructor of the same model with other values of some fields of its configuration.

    Raises:
      ValueError: the model has no configuration, or that has no such field, or not such a value.
    """
    config = of(make)
    names = [field.name for field in dataclasses.fields(config)]
    if not isinstance(fields, Mapping) or not all(name in names for name in fields):
        unknown = next((name for name in fields if name not in names), fields)
        raise ValueError(
            f"PHASES: the model of a phase is given as fields of {selector(config)}, {{name: "
            f"value}}, not as {fields!r}{nearest(str(unknown), names, of='fields')}"
        )
    changed = dataclasses.replace(config, **fields)
    if make.keywords.get("config") is config:
        return functools.partial(make, config=changed)
    return functools.partial(make.func, changed, *make.args[1:], **make.keywords)


def family(config: Any) -> str:
    """The name of a model's family, which is that of its module."""
    return type(config).__module__.rpartition(".")[2]


def selector(config: Any) -> str:
    """The name of the class in gin files: `bert.Config`."""
    return f"{family(config)}.{type(config).__name__}"


def rows(ids: int, usual: int) -> int:
    """The rows of tables for so many ids: the `usual` ones if few are to spare, or the fewest.

    They are a multiple of 128, as in T5: matrix units work on so many columns at once.
    """
    return usual if ids <= usual < ids + _SPARE else -(-ids // _SPARE) * _SPARE


def given(config: Any) -> set[str]:
    """The fields that the user has set."""
    settings = (given_setting.setting for given_setting in gin_config.given_settings())
    return {setting.parameter for setting in settings if setting.selector == selector(config)}


def bind(config: Any, values: Mapping[str, Any], *, where: str) -> str:
    """Sets fields in the process's gin configuration; returns them as text.

    Args:
      config: the configuration whose class has the fields.
      values: {field: value}.
      where: what the values are from, for gin's errors.
    """
    writer = object_text.Writer()
    lines = [f"{selector(config)}.{name} = {writer.reference(x)}" for name, x in values.items()]
    writer.modules.add((type(config).__module__.rpartition(".")[0], family(config)))
    gin_config.add_text(writer.text("sizes", lines), where=where)
    return ", ".join(f"{name} {getattr(x, '__name__', x)}" for name, x in values.items())

"""The configuration of a model that gin makes, whose fields may follow other settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from t5x_like.config import gin_config, object_text


def find(make: Any) -> Any:
    """The configuration (a dataclass) that a constructor gives its model; None if it gives none."""
    found = getattr(make, "keywords", {}).get("config") or next(iter(getattr(make, "args", ())), 0)
    return found if dataclasses.is_dataclass(found) else None


def of(make: Any, directory: str = "") -> Any:
    """Like `find`, where there must be one.

    Args:
      make: the constructor.
      directory: where it is from, for errors; "" for this run.

    Raises:
      ValueError: it gives none.
    """
    found = find(make)
    if found is None:
        raise ValueError(
            f"the model of {directory or 'this run'} has no sizes that another could have: name "
            "its parameters alone with INIT_FROM = @init_from.InitFrom()"
        )
    return found


def family(config: Any) -> str:
    """The name of a model's family, which is that of its module."""
    return type(config).__module__.rpartition(".")[2]


def selector(config: Any) -> str:
    """What gin files call the class: `bert.Config`."""
    return f"{family(config)}.{type(config).__name__}"


def given(config: Any) -> set[str]:
    """The fields that the user has set."""
    settings = (one.setting for one in gin_config.given_settings())
    return {one.parameter for one in settings if one.selector == selector(config)}


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

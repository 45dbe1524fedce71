"""Objectives by name, with the fields that the configuration sets."""

from __future__ import annotations

import dataclasses
from typing import Any

from t5x_like import objectives
from t5x_like.config import gin_config
from t5x_like.core.protocols.data import Objective


def preset(name: str) -> Objective:
    """The objective called `name`, with the fields that gin binds for its class and its parts.

    So `--gin.span_corruption.SpanCorruption.noise_density=0.5` changes it wherever it is named: by
    OBJECTIVE, by a phase, or as `<corpus>.<objective>`.

    Raises:
      ValueError: there is no such preset; the message gives the nearest names.
      ConfigError: a field has an impossible value.
    """
    return _bound(objectives.preset(name))


@dataclasses.dataclass(frozen=True)
class Presets:
    """The objectives by name, with the fields of some earlier configuration.

    `changed` holds pairs of a name and its changed objective.
    """

    changed: tuple[tuple[str, Objective], ...] = ()

    def __call__(self, name: str) -> Objective:
        return dict(self.changed).get(name) or objectives.preset(name)


def now() -> Presets:
    """The objectives under the current configuration; later configurations do not change them."""
    configured = {name: _bound(usual) for name, usual in objectives.presets().items()}
    changed = {
        name: objective
        for name, objective in configured.items()
        if objective != objectives.preset(name)
    }
    return Presets(tuple(changed.items()))


def resolve(named: Objective | str | None) -> Objective | None:
    """The objective that OBJECTIVE or a phase names; an object is returned as it is."""
    return preset(named) if isinstance(named, str) else named


def _bound(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(map(_bound, part))
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return part
    kind = type(part)
    arguments = gin_config.arguments_of(kind)
    fields = {
        field.name: _bound(getattr(part, field.name))
        for field in dataclasses.fields(part)
        if field.init and field.name not in arguments
    }
    # Calling through gin marks its bindings as read.
    return gin_config.construct(kind, **fields) if arguments else kind(**fields)

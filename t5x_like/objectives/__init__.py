"""Pretraining objectives: pure NumPy functions from a sample of tokens to features."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_like.core.protocols import Objective
from t5x_like.core.spelling import nearest


def presets() -> dict[str, Objective]:
    """Every objective by name: the union of the `PRESETS` of this package's modules.

    Raises:
      ValueError: two modules claim one name.
    """
    return _union("PRESETS")


def summaries() -> dict[str, str]:
    """One line about each preset and its source: the union of the modules' `SUMMARIES`.

    Raises:
      ValueError: two modules claim one name.
    """
    return _union("SUMMARIES")


def _union(attribute: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(__path__):
        named = getattr(importlib.import_module(f"{__name__}.{module.name}"), attribute, {})
        if twice := found.keys() & named.keys():
            raise ValueError(f"objective presets {sorted(twice)} are defined twice; rename one")
        found.update(named)
    return found


def preset(name: str) -> Objective:
    """The objective called `name`.

    Raises:
      ValueError: there is no such preset; the message gives the nearest names.
    """
    known = presets()
    if name not in known:
        raise ValueError(f"no objective {name!r}" + nearest(name, sorted(known), of="objectives"))
    return known[name]

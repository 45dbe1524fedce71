"""Pretraining objectives: pure NumPy functions from a sample of tokens to features."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_like.core.protocols.data import Objective
from t5x_like.core.protocols.data import PLAIN_TEXT
from t5x_like.core.spelling import nearest
from t5x_like.objectives import supervised


def presets() -> dict[str, Objective]:
    """Every objective by name: the union of the `PRESETS` of the modules here and in `supervised`.

    Raises:
      ValueError: two modules claim one name.
    """
    return _union("PRESETS")


def of_plain_text() -> dict[str, Objective]:
    """Those of `presets` that make examples of plain text."""
    return {
        name: objective for name, objective in presets().items() if objective.reads == PLAIN_TEXT
    }


def summaries() -> dict[str, str]:
    """One line about each preset and its source: the union of the modules' `SUMMARIES`.

    Raises:
      ValueError: two modules claim one name.
    """
    return _union("SUMMARIES")


def _union(attribute: str) -> dict[str, Any]:
    union: dict[str, Any] = {}
    folders = (f"{__name__}.", __path__), (f"{supervised.__name__}.", supervised.__path__)
    for module in (
        module_info
        for prefix, path in folders
        for module_info in pkgutil.iter_modules(path, prefix)
    ):
        named = getattr(importlib.import_module(module.name), attribute, {})
        if twice := union.keys() & named.keys():
            raise ValueError(f"objective presets {sorted(twice)} are defined twice; rename one")
        union.update(named)
    return union


def preset(name: str) -> Objective:
    """The objective called `name`.

    Raises:
      ValueError: there is no such preset; the message gives the nearest names.
    """
    known = presets()
    if name not in known:
        raise ValueError(f"no objective {name!r}" + nearest(name, sorted(known), of="objectives"))
    return known[name]

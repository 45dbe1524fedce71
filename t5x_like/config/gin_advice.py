"""What gin's messages mean, and what to write in place of what they are about."""

from __future__ import annotations

import inspect
import re

import gin

from t5x_like.config import trust
from t5x_like.core.spelling import nearest


def circle() -> str:
    """The macros of a circle, such as ": A = %B, B = %A"; "" if none is found."""
    refers = {
        name: re.findall(r"%(\w+)", repr(values.get("value")))
        for (name, selector), values in gin.config._CONFIG.items()
        if selector == "gin.macro"
    }
    for start in refers:
        path = [start]
        while (following := next(iter(refers.get(path[-1], ())), None)) not in (None, *path):
            path.append(str(following))
        if following == start:
            pairs = zip(path, [*path[1:], start], strict=True)
            return ": " + ", ".join(f"{first} = %{other}" for first, other in pairs)
    return ""


def not_imported(message: str, where: str) -> str:
    """Advice for gin's message about a name that stands for no imported module."""
    name = message.partition("'")[2].partition("'")[0]
    known = {module.rpartition(".")[2]: module for module in trust.modules()}
    if name in known:
        package = known[name].rpartition(".")[0]
        return f"{name!r} is not imported {where}: add `from {package} import {name}`"
    imported = [statement.module.rpartition(".")[2] for statement in gin.config._IMPORTS]
    return f"no module {name!r} is imported {where}" + nearest(name, sorted({*known, *imported}))


def nearest_configurable(message: str) -> str:
    """Advice for gin's message: the nearest configurables, or parameters of the configurable."""
    if match := re.search(r"No configurable matching '([\w.]+)'", message):
        selectors = {selector for _, selector in gin.config._CONFIG if selector != "gin.macro"}
        known = sorted(".".join(selector.split(".")[-2:]) for selector in selectors)
        return nearest(match[1], known)
    if match := re.search(
        r"Configurable '([\w.]+)' doesn't have a parameter named '(\w+)'", message
    ):
        configurable = gin.config._REGISTRY.get_match(match[1])
        if configurable is not None:
            return nearest(match[2], list(inspect.signature(configurable.wrapped).parameters))
    return ""


def ambiguous(message: str, where: str) -> str:
    """Advice for gin's message about a name that several of our modules have."""
    named, *meant = re.findall(r"'([\w.]+)'", message)
    return f"{named!r} has several meanings {where}: write one of {', '.join(sorted(meant))}"

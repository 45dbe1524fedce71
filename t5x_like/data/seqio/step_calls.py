"""The functions that a task's steps call, and the arguments that are bound to them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import gin


def call_of(step: Any) -> tuple[Any, dict[str, Any]]:
    """The function under partial applications and gin's wrappers, and the arguments they bind.

    Gin's values are those of its present configuration. The function is a wrapper of gin where that
    adds a scope, and a partial application where that binds arguments by position.
    """
    bound: dict[str, Any] = {}
    while True:
        if isinstance(step, functools.partial) and not step.args:
            bound = {**step.keywords, **bound}
            step = step.func
        elif _is_of_gin(step) and "scope_components" not in step.__code__.co_freevars:
            bound = {**_gin_bindings(step), **bound}
            step = step.__wrapped__
        else:
            return step, bound


def defaults(function: Callable) -> dict[str, Any]:
    """The arguments of a function that have a default, and their defaults."""
    known = inspect.signature(function).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in known
        if parameter.default is not parameter.empty
    }


def _gin_bindings(step: Callable) -> dict[str, Any]:
    known = gin.config._inverse_lookup(step)
    if known is None:  # gin has forgotten it, so nothing is bound
        return {}
    bound: dict[str, Any] = gin.get_bindings(step)
    # Gin counts the bindings as used, as if it had called the function.
    gin.config._OPERATIVE_CONFIG.setdefault(("", known.selector), {}).update(bound)
    return bound


def _is_of_gin(step: Callable) -> bool:
    return getattr(step, "__globals__", {}).get("__name__") == "gin.config"


def step_name(step: Callable) -> str:
    """The module and name of a step's function or class."""
    while isinstance(step, functools.partial):
        step = step.func
    named = step if hasattr(step, "__qualname__") else type(step)
    return f"{named.__module__}.{named.__qualname__}"


def run_arguments(step: Callable) -> set[str]:
    """The names of the arguments (or fields, of a dataclass) that SeqIO may pass to a step."""
    if dataclasses.is_dataclass(step):
        return {field.name for field in dataclasses.fields(step)}
    names = set(inspect.signature(step).parameters)
    return names - step.keywords.keys() if isinstance(step, functools.partial) else names

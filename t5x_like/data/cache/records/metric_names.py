"""The names of a task's metric functions, which find them again where SeqIO is not installed.

A record of them may come from anybody. It names only functions that a module of this package lists
as `METRICS`, and those of modules that the user has named (`user_modules`).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import json
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t5x_like.data import user_modules
from t5x_like.data.cache import typed_json

Function = Callable[..., Any]

_TASKS = "t5x_like.tasks"
_LISTED = "t5x_like.evaluation.task_metrics"
"""Besides modules of `_TASKS`, the module of this package whose `METRICS` a record may name."""


@dataclasses.dataclass(frozen=True)
class MetricNames:
    """The metrics of a SeqIO task in JSON.

    A function is {"name": "module:qualified_name", "args": [...], "kwargs": {...}}, with the
    arguments that a `functools.partial` binds.

    Attributes:
      metric_fns: the functions that have a name.
      postprocess_fn: the function that runs on decoded outputs and targets; None if there is none.
      unnamed: the metrics that only the task itself has, each with the reason.
    """

    metric_fns: Sequence[Mapping[str, Any]] = ()
    postprocess_fn: Mapping[str, Any] | None = None
    unnamed: Sequence[str] = ()

    @classmethod
    def of(cls, metric_fns: Sequence[Function], postprocess_fn: Function | None) -> MetricNames:
        """The names of these functions."""
        named, unnamed = [], []
        for function in metric_fns:
            try:
                named.append(_call(function))
            except ValueError as error:
                unnamed.append(str(error))
        if postprocess_fn is None:
            return cls(tuple(named), None, tuple(unnamed))
        try:
            return cls(tuple(named), _call(postprocess_fn), tuple(unnamed))
        except ValueError as error:
            unnamed_all = [
                f"{function_name(metric_fn)} (its postprocess_fn: {error})"
                for metric_fn in metric_fns
            ]
            return cls(unnamed=tuple(unnamed_all))

    @classmethod
    def from_json(cls, value: Any, where: str) -> MetricNames:
        """The names in `dataclasses.asdict(names)`, after JSON.

        Raises:
          ValueError: these are not such fields; `where` names them.
        """
        read = typed_json.read(_Record, value, f"{where}: its metrics")
        calls = tuple(dataclasses.asdict(call) for call in read.metric_fns)
        post = None if read.postprocess_fn is None else dataclasses.asdict(read.postprocess_fn)
        return cls(calls, post, read.unnamed)

    def functions(self) -> tuple[list[Function], Function | None, list[str]]:
        """The metric functions, `postprocess_fn`, and what is missing, each with the reason.

        A function is found only if a module of t5x_like lists it, or the user has named its module.
        """
        missing = list(self.unnamed)
        postprocess_fn = None
        if self.postprocess_fn is not None:
            try:
                postprocess_fn = _find(self.postprocess_fn)
            except ValueError as error:
                names = [_shown(recorded) for recorded in self.metric_fns]
                return (
                    [],
                    None,
                    [*missing, *(f"{name} (postprocess_fn: {error})" for name in names)],
                )
        metric_fns = []
        for call in self.metric_fns:
            try:
                metric_fns.append(_find(call))
            except ValueError as error:
                missing.append(f"{_shown(call)} ({error})")
        return metric_fns, postprocess_fn, missing


@dataclasses.dataclass(frozen=True)
class _Call:
    """A function in JSON."""

    name: str
    args: list
    kwargs: dict


@dataclasses.dataclass(frozen=True)
class _Record:
    """`MetricNames` in JSON."""

    metric_fns: tuple[_Call, ...]
    postprocess_fn: _Call | None
    unnamed: tuple[str, ...]


def function_name(function: Any) -> str:
    """The name of a function, inside partial applications too."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _call(function: Function) -> dict[str, Any]:
    """The name and the bound arguments of a function; raises ValueError if it has none."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    inner = function
    while isinstance(inner, functools.partial):
        args, kwargs = (*inner.args, *args), {**inner.keywords, **kwargs}
        inner = inner.func
    name = function_name(function)
    bound = [list(args), kwargs]
    try:
        is_json = _with_tuples(json.loads(json.dumps(_without_tuples(bound)))) == bound
    except (TypeError, ValueError):
        is_json = False
    if not is_json:
        raise ValueError(f"{name} (its arguments {bound} are not JSON)")
    module = getattr(inner, "__module__", None)
    address = f"{module}:{getattr(inner, '__qualname__', '')}"
    if _attribute(address) is not inner:
        raise ValueError(f"{name} (a lambda or closure, or another object that no import finds)")
    plain = _without_tuples(bound)
    return {"name": address, "args": plain[0], "kwargs": plain[1]}


def _without_tuples(value: Any) -> Any:
    """The value with {"tuple": [...]} in place of tuples, which JSON lacks."""
    match value:
        case tuple():
            return {"tuple": [_without_tuples(part) for part in value]}
        case list():
            return [_without_tuples(part) for part in value]
        case dict():
            return {name: _without_tuples(part) for name, part in value.items()}
    return value


def _with_tuples(value: Any) -> Any:
    """The inverse of `_without_tuples`."""
    match value:
        case {"tuple": list(several)} if len(value) == 1:
            return tuple(_with_tuples(part) for part in several)
        case list():
            return [_with_tuples(part) for part in value]
        case dict():
            return {name: _with_tuples(part) for name, part in value.items()}
    return value


def _attribute(address: str) -> Any:
    """The function that an imported module defines under a name; None if it defines none."""
    module, _, name = address.partition(":")
    thing = sys.modules.get(module)
    for part in name.split("."):
        thing = getattr(thing, part, None)
    return thing if inspect.isfunction(thing) and thing.__module__ == module else None


def _find(call: Mapping[str, Any]) -> Function:
    function = _allowed(call["name"])
    if not call["args"] and not call["kwargs"]:
        return function
    args, kwargs = _with_tuples([call["args"], call["kwargs"]])
    return functools.partial(function, *args, **kwargs)


def _allowed(address: str) -> Function:
    """The function of an address in a record; raises ValueError where it may not be named."""
    module, _, name = address.partition(":")
    if user_modules.named(module) is not None:
        if (function := _attribute(address)) is None:
            raise ValueError(f"{module} has no such function")
        return function
    if not module.startswith("t5x_like."):
        raise ValueError(f"add --module {module}, if you trust it")
    for metric in _listed(module):
        if metric.__qualname__ == name:
            return metric
    raise ValueError(f"{module} lists no such metric")


def _listed(module: str) -> Sequence[Function]:
    """The `METRICS` of a module of this package; none of modules that are not for metrics."""
    if module != _LISTED:
        tasks = importlib.import_module(_TASKS)
        if module not in {
            module_info.name for module_info in pkgutil.iter_modules(tasks.__path__, f"{_TASKS}.")
        }:
            return ()
    listed: Sequence[Function] = getattr(importlib.import_module(module), "METRICS", ())
    return listed


def _shown(call: Mapping[str, Any]) -> str:
    return str(call["name"]).rpartition(":")[2]

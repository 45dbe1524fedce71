"""A module that uses parts of another, which alone stores them.

A parameter that two modules of a tree held would be two: their gradients would not add up.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, TypeVar

from flax import nnx

_Module = TypeVar("_Module", bound=nnx.Module)


def without(module: _Module, parts: Sequence[str]) -> _Module:
    """`module`, from now on without `parts`: attributes such as `encoder.embedding`."""
    for part in parts:
        delattr(*_place(module, part))
    return module


def completed(module: _Module, owner: nnx.Module, parts: Sequence[str]) -> _Module:
    """A copy of `module` with the same `parts` of `owner` in it: to be called, not to be stored."""
    whole = nnx.merge(*nnx.split(module))
    for part in parts:
        setattr(*_place(whole, part), operator.attrgetter(part)(owner))
    return whole


def _place(module: Any, part: str) -> tuple[Any, str]:
    *parents, name = part.split(".")
    return functools.reduce(getattr, parents, module), name

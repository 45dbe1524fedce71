"""Modules that use parts of another module, which alone stores them.

If two modules of a tree held one parameter, it would be two: their gradients would not add up.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, TypeVar

from flax import nnx

_Module = TypeVar("_Module", bound=nnx.Module)


def without(module: _Module, parts: Sequence[str]) -> _Module:
    """Removes `parts` from `module`: attributes such as `encoder.embedding`. Returns `module`."""
    for part in parts:
        delattr(*_place(module, part))
    return module


def complete(module: _Module, owner: nnx.Module, parts: Sequence[str]) -> _Module:
    """A copy of `module` with `parts` of `owner` in it: for calls, not to be stored."""
    whole = nnx.merge(*nnx.split(module))
    for part in parts:
        setattr(*_place(whole, part), operator.attrgetter(part)(owner))
    return whole


def _place(module: Any, part: str) -> tuple[Any, str]:
    *parents, name = part.split(".")
    return functools.reduce(getattr, parents, module), name

"""Results that remember the call that made them, so that they can be written as gin text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def remember_call(make: Callable[P, R]) -> Callable[P, R]:
    """Adds `made_by` to what `make` returns: a `functools.partial` of the call.

    `make` returns a function, or a named tuple with a field `made_by`.
    """

    @functools.wraps(make)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> R:
        result = make(*args, **kwargs)
        call = functools.partial(remembering, *args, **kwargs)
        if isinstance(result, tuple):
            return result._replace(made_by=call)  # type: ignore[attr-defined]
        result.made_by = call  # type: ignore[attr-defined]
        return result

    return remembering

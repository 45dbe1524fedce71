"""The numbers of an optimizer's schedules as arguments of a program, in place of constants in it.

Runs that differ in their learning rate or in their number of steps then share what is compiled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

_NAMES = ("learning_rate", "scale", "peak", "final", "warmup_steps", "total_steps")
"""The arguments of optimizers and schedules that are such numbers."""


def schedule_numbers(optimizer: Any) -> tuple[np.float32, ...]:
    """The numbers of an optimizer that remembers the call that made it (`calls.remember_call`).

    Those of its schedule, and of the parts of its schedule, in the order of `with_numbers`. An
    optimizer or a schedule of another origin has none.
    """
    numbers: list[float] = []
    _mapped(optimizer, numbers.append, lambda *_: None)
    return tuple(map(np.float32, numbers))


def with_numbers(optimizer: Any, numbers: Sequence[jax.Array]) -> Any:
    """The optimizer with other numbers in the place of its `schedule_numbers`, float32 [] each."""
    left = iter(numbers)
    return _mapped(optimizer, lambda _: next(left), lambda made, given: made(**given))


def without_numbers(optimizer: Any) -> Any:
    """A value that is equal for optimizers that differ in their `schedule_numbers` alone."""
    return _mapped(optimizer, lambda _: "a number", lambda *made: made)


def _mapped(made: Any, number: Callable[[float], Any], call: Callable[..., Any]) -> Any:
    """`call(function, {argument: value})` of the call that made an optimizer or a schedule.

    Its schedules become their own calls, and its numbers what `number` gives for them.
    """
    made_by = getattr(made, "made_by", None)
    if made_by is None:
        return made
    given = inspect.signature(made_by.func).bind(*made_by.args, **made_by.keywords).arguments

    def argument(name: str, value: Any) -> Any:
        if getattr(value, "made_by", None) is not None:
            return _mapped(value, number, call)
        if isinstance(value, list | tuple):
            return [_mapped(part, number, call) for part in value]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return number(value) if name in _NAMES and is_number else value

    return call(made_by.func, {name: argument(name, value) for name, value in given.items()})

"""Checks of fields of objectives and noise: shares, probabilities, and numbers that cost time."""

from __future__ import annotations

MOST = 1000
"""Of words of a span or n-gram, and of passes over a text: far above any that is useful, and far
below what would fill the memory. Fields may come from files of strangers."""


def check_share(owner: object, name: str, *, zero: bool = True) -> None:
    """Checks field `name` of a frozen dataclass and makes it a float, as the repr decides noise.

    Raises:
      ValueError: the value is not between 0 and 1, or it is 0 and `zero` is False.
    """
    share = float(getattr(owner, name))
    if not (0 if zero else 1e-12) <= share <= 1:
        allowed = "between 0 and 1" if zero else "a share above 0 and at most 1"
        raise ValueError(f"{type(owner).__name__}: {name} is {allowed}, got {share}")
    object.__setattr__(owner, name, share)


def check_count(owner: object, name: str, *, of: str) -> None:
    """Raises ValueError unless field `name`, a number `of` something, is from 1 to `MOST`."""
    value = getattr(owner, name)
    if not 1 <= value <= MOST:
        raise ValueError(f"{type(owner).__name__}: {name} is from 1 to {MOST:,} {of}, got {value}")

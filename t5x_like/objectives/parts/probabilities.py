"""Checking the fields of objectives and noise that are shares of something, or probabilities."""

from __future__ import annotations


def check_share(owner: object, name: str, *, zero: bool = True) -> None:
    """Makes field `name` of a frozen dataclass a float: 1 and 1.0 must not give other noise.

    Raises:
      ValueError: it is not between 0 and 1, or it is 0 and may not be.
    """
    share = float(getattr(owner, name))
    if not (0 if zero else 1e-12) <= share <= 1:
        allowed = "between 0 and 1" if zero else "a share above 0 and at most 1"
        raise ValueError(f"{type(owner).__name__}: {name} is {allowed}, got {share}")
    object.__setattr__(owner, name, share)

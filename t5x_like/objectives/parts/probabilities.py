"""Checking the fields of noise that are shares of something, or probabilities."""

from __future__ import annotations


def check_share(noise: object, name: str) -> None:
    """Makes field `name` of a frozen dataclass a float: 1 and 1.0 must not give other noise.

    Raises:
      ValueError: it is not between 0 and 1.
    """
    share = float(getattr(noise, name))
    if not 0 <= share <= 1:
        raise ValueError(f"{type(noise).__name__}: {name} is between 0 and 1, got {share}")
    object.__setattr__(noise, name, share)

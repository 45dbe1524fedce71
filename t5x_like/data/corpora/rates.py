"""Rates of a mixture as whole numbers."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import gcd, lcm


def integer_weights(rates: Mapping[str, float]) -> dict[str, int]:
    """The smallest integers in the proportion of `rates`, which are rounded to nine digits.

    Raises:
      ValueError: a rate is negative, or all are zero.
    """
    exact = {name: Fraction(rate).limit_denominator(10**9) for name, rate in rates.items()}
    if any(rate < 0 for rate in exact.values()) or not any(exact.values()):
        raise ValueError(f"mixture rates must be positive: {dict(rates)}")
    scale = lcm(*(rate.denominator for rate in exact.values()))
    whole = {name: int(rate * scale) for name, rate in exact.items()}
    divisor = gcd(*whole.values())
    return {name: weight // divisor for name, weight in whole.items()}

"""Merged models: means of parameters (Wortsman et al., 2022) and TIES (Yadav et al., 2023)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mean(models: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """The weighted sum of a parameter of several models, float32 of its shape.

    Args:
      models: the parameter in each model.
      weights: the weight of each; 1 together for a mean.
    """
    total = np.zeros(models[0].shape, np.float32)
    for weight, x in zip(weights, models, strict=True):
        total += np.float32(weight) * np.asarray(x, np.float32)
    return total


def ties(
    base: np.ndarray, models: Sequence[np.ndarray], *, density: float, scale: float
) -> np.ndarray:
    """The base and what several models agree on (TIES, section 3): float32 of its shape.

    Of each difference from the base the largest are kept, a share `density` of the numbers. Each
    number gets the sign that has the larger sum, and the mean of the differences of that sign.

    Args:
      base: a parameter of the base.
      models: the parameter in each model.
      density: above 0, at most 1.
      scale: the factor of what is added to the base.
    """
    differences = np.stack([np.asarray(x, np.float32) - base for x in models])
    flat = np.abs(differences).reshape(len(models), -1)
    kept = max(1, round(density * flat.shape[1]))
    least = np.partition(flat, -kept, axis=1)[:, -kept]
    trimmed = np.where(np.abs(differences) >= least.reshape(-1, *[1] * base.ndim), differences, 0)
    sign = np.sign(trimmed.sum(0))
    agreed = np.where(np.sign(trimmed) == sign, trimmed, 0)
    count = np.maximum((agreed != 0).sum(0), 1)
    return np.asarray(base + np.float32(scale) * (agreed.sum(0) / count), np.float32)

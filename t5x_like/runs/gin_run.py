"""A run as gin describes it, made independent of gin's configuration."""

from __future__ import annotations

import dataclasses

from t5x_like.config import gin_config, presets
from t5x_like.runs.run import Run


def built() -> Run:
    """The run that gin is configured with. Some of its parts ask gin when they are called.

    Raises:
      ConfigError: a part is missing, or cannot be made.
    """
    return gin_config.build(Run)


def freed(run: Run) -> Run:
    """The same run, which stays what it is when another configuration is loaded."""
    found: Run = gin_config.without_gin(run)
    data = dataclasses.replace(found.data, find_objective=presets.now())
    return dataclasses.replace(found, data=data)

"""The run that gin describes, and a copy of it that is independent of gin's configuration."""

from __future__ import annotations

import dataclasses

from t5x_like.config import gin_config, presets
from t5x_like.runs.run import Run


def build() -> Run:
    """The run of gin's current configuration. Some of its parts read gin when they are called.

    Raises:
      ConfigError: a part is missing or cannot be made.
    """
    return gin_config.build(Run)


def without_gin(run: Run) -> Run:
    """A copy of the run that does not change when another configuration is loaded."""
    found: Run = gin_config.without_gin(run)
    data = dataclasses.replace(found.data, find_objective=presets.now())
    return dataclasses.replace(found, data=data)

"""Recipes as runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import gin
import pytest

from t5x_like.config import gin_config, gin_files
from t5x_like.runs.run import Run


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Nothing of one test's configuration is left to the next."""
    gin.clear_config()
    yield
    gin.clear_config()


@pytest.fixture
def resolved() -> Callable[[str], Run]:
    """The run of a recipe, which gin is then configured with."""

    def resolve(name: str) -> Run:
        gin_config.load([str(gin_files.find_recipe(name))])
        return gin_config.build(Run)

    return resolve

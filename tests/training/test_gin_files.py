"""Each optimizer and each mesh file of gin/ gives what its macro promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gin
import numpy as np
import pytest

from t5x_like.core.partitioning import Layout

GIN = Path(__file__).parent.parent.parent / "gin"

RECIPES_SET = ("PEAK_LEARNING_RATE", "WARMUP_STEPS")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    gin.clear_config()
    yield
    gin.clear_config()


def value(macro: str, path: Path) -> Any:
    """The value of a macro after reading a file."""
    gin.parse_config(
        "from __gin__ import dynamic_registration\nimport builtins\n"
        f"TRAIN_STEPS = 100_000\nbuiltins.dict.value = %{macro}"
    )
    gin.parse_config_file(str(path))
    return gin.get_configurable("builtins.dict")()["value"]


@pytest.mark.parametrize("path", sorted((GIN / "optimizers").iterdir()), ids=lambda p: p.stem)
def test_optimizers(path: Path) -> None:
    optimizer = value("OPTIMIZER", path)
    params = {"w": np.ones((2, 2), np.float32)}
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    assert updates["w"].shape == (2, 2)
    assert 0 < float(optimizer.learning_rate(50)) < 0.1
    if path.stem != "adafactor":
        # The settings that a recipe overrides.
        peak, steps = (gin.query_parameter(f"{n}/gin.macro.value") for n in RECIPES_SET)
        assert float(optimizer.learning_rate(steps)) == pytest.approx(peak, rel=0.11)
        assert float(optimizer.learning_rate(100_000)) == 0


@pytest.mark.parametrize("path", sorted((GIN / "meshes").iterdir()), ids=lambda p: p.stem)
def test_meshes(path: Path) -> None:
    layout = value("LAYOUT", path)
    assert isinstance(layout, Layout)
    assert layout.mesh.size == 8

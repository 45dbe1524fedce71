"""What tests of kernels for TPUs share: kernels that are chosen, and interpreted on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import pytest

from t5x_like.core.partitioning import Layout
from t5x_like.layers.attention import relative_tpu


@pytest.fixture
def interpreted_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], list[int]]:
    """Lets a module take the relative kernel, interpreted; a list with an entry for each call."""

    def interpret(module: ModuleType) -> list[int]:
        calls: list[int] = []

        def interpreted(*args: Any, **kwargs: Any) -> jax.Array:
            calls.append(1)
            return relative_tpu.relative_tpu(*args, **kwargs, interpret=True)

        monkeypatch.setattr(Layout, "platform", property(lambda self: "tpu"))
        monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
        monkeypatch.setattr(module, "relative_tpu", interpreted)
        return calls

    return interpret

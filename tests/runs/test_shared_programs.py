"""Runs share a program where nothing differs that is compiled, and only there."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest
import small_bert

from t5x_like.models.bert import Bert
from t5x_like.runs.program import Programs
from t5x_like.training.optimization import optimizers, schedules


def optimizer(rate: float, total: int = 10, **more: Any) -> optimizers.Optimizer:
    return optimizers.adamw(schedules.linear(rate, total_steps=total), **more)


@pytest.mark.parametrize(
    ("changed", "shared"),
    [
        ({"optimizer": optimizer(2e-3)}, True),
        ({"optimizer": optimizer(1e-3, total=20)}, True),
        ({"seed": 3}, True),
        ({"log_period": 7}, True),
        ({"optimizer": optimizer(1e-3, weight_decay=0.5)}, False),
        ({"optimizer": optimizers.adamw(1e-3)}, False),
        ({"batch_size": 16}, False),
        ({"gradient_clip": 0.5}, False),
        ({"frozen": ("mlm",)}, False),
        ({"config": dataclasses.replace(small_bert.CONFIG, dropout_rate=0.2)}, False),
    ],
)
def test_what_programs_depend_on(
    tmp_path: Path, text: Path, changed: dict[str, Any], shared: bool
) -> None:
    def run(**parts: Any) -> Any:
        # Another object each time, as a configuration makes it.
        config = parts.pop("config", dataclasses.replace(small_bert.CONFIG))
        made = {
            "model": functools.partial(Bert, config=config),
            "optimizer": parts.pop("optimizer", optimizer(1e-3)),
        }
        options = dataclasses.replace(small_bert.OPTIONS, **parts)
        return small_bert.made(tmp_path, text, "run", **made, options=options)

    programs = Programs()
    (first,), (second,) = programs.of([run()]), programs.of([run(**changed)])
    assert (first.step_with_numbers is second.step_with_numbers) == shared
    if shared:
        assert (first.numbers != second.numbers) == ("optimizer" in changed)

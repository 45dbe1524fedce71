"""A recurrent model of a user: its rows continue, and its state survives every restart."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import numpy as np
import pytest
from recurrent import Config, Lstm
from tiny_run import assert_same_state, losses

import t5x_like as t5x
from t5x_like.data.corpora import registry
from t5x_like.training.optimization import optimizers

pytestmark = pytest.mark.slow

STEPS, ROWS, LENGTH = 120, 64, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With `docs.txt`, some pages of Python's documentation; runs share its cache."""
    folder = tmp_path_factory.mktemp("recurrent")
    pages = itertools.islice(registry.get("stdlib_docs").documents("train"), 40)
    text = "\n\n".join(" ".join(page["targets"].split()) for page in pages)
    (folder / "docs.txt").write_text(text)
    return folder


def run(folder: Path, name: str, *, remembers: bool = True) -> t5x.Pretraining:
    return t5x.recipe(
        "gpt-mini",
        corpus=str(folder / "docs.txt"),
        model_dir=str(folder / name),
        cache_dir=str(folder / "cache"),
        vocabulary="bytes",
        train_steps=STEPS,
        batch_size=ROWS,
        mesh={"data": 8},
        model=functools.partial(Lstm, Config(remembers=remembers)),
        objective="lm_continued",
        optimizer=optimizers.adamw(0.02),
        gin=[
            f"TASK_FEATURE_LENGTHS={{'targets': {LENGTH}}}",
            "LOG_PERIOD=1",
            "EVAL_PERIOD=30",
            "WARMUP_STEPS=5",
        ],
    )


def test_a_state_reaches_the_next_step_and_every_restart(folder: Path) -> None:
    assert run(folder, "whole").train().status == "finished"
    whole = losses(folder / "whole")

    run(folder, "forgets", remembers=False).train()
    forgets = losses(folder / "forgets")
    # The first step has no state yet; the second already reads what the first has left.
    assert whole[1] == forgets[1]
    assert whole[2] != forgets[2]
    late = range(STEPS - 20, STEPS + 1)
    assert np.mean([whole[n] for n in late]) < np.mean([forgets[n] for n in late]) - 0.1

    for step in run(folder, "stopped").steps():
        if step.step == 17:
            break
    assert run(folder, "stopped").train().status == "finished"
    assert losses(folder / "stopped") == whole
    assert_same_state(folder / "stopped", folder / "whole", rows=ROWS, modules=["recurrent"])

"""A masked model of a user, whose parts have names of its own: it trains, fills, gives maps."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import numpy as np
import pytest
from tiny_run import losses
from windowed import Config, Windowed

import t5x_like as t5x

pytestmark = pytest.mark.slow

WINDOW, LENGTH = 4, 32


def test_it_trains_and_can_be_asked_all_that_it_declares(tmp_path: Path) -> None:
    words = itertools.product(("tall", "old", "green"), ("lake", "river", "road"), range(20))
    text = "\n\n".join(f"Some {what} trees grow by the {where}." for what, where, _ in words)
    (tmp_path / "trees.txt").write_text(text)
    trained = t5x.recipe(
        "bert-mini",
        corpus=str(tmp_path / "trees.txt"),
        model_dir=str(tmp_path / "run"),
        cache_dir=str(tmp_path / "cache"),
        vocab_size=300,
        train_steps=200,
        batch_size=16,
        model=functools.partial(Windowed, Config(window=WINDOW, init_std=0.1)),
        objective="mlm",
        gin=[
            "PHASES=()",
            f"TASK_FEATURE_LENGTHS={{'inputs': {LENGTH}}}",
            "PEAK_LEARNING_RATE=0.003",
            "LOG_PERIOD=25",
        ],
    )
    assert trained.train().status == "finished"
    logged = losses(tmp_path / "run")
    assert logged[max(logged)] < logged[min(logged)] / 2

    model = t5x.load(str(tmp_path / "run"), modules=["windowed"])
    filled = model.predict("Some old [MASK] grow by the lake.", ask="fill")
    assert filled["filled"] == "Some old trees grow by the lake."
    (seen,) = model.attention(["Some old trees grow by the lake."])
    maps, length = seen.probabilities, len(seen.tokens)
    assert maps.shape == (3, 4, length, length)
    np.testing.assert_allclose(maps.sum(-1), 1, rtol=1e-4)
    far = np.abs(np.subtract.outer(range(length), range(length))) > WINDOW
    assert far.any()
    assert not maps[1, ..., far].any()
    assert maps[0, ..., far].any()
    assert maps[2, ..., far].any()

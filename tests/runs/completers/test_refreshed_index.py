"""A completer that refreshes an index while a run trains; a resumed run has the same one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_run import Tiny, assert_evaluated, assert_same_state, losses

from t5x_like.training.checkpointing.checkpoints import Checkpoints

MODULE = '''
"""Weighs each target by how near its vector is to that of another one, in an index."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Nearness:
    period: int = 10
    paths: ClassVar = {}  # it reads nothing

    def check(self, vocabulary):
        pass

    def check_model(self, model):
        pass

    def added(self, row, model):
        return {}

    def identity(self):
        return ["nearness", self.period]

    def open(self, layout):
        return Indexed(self.period, layout)


class Indexed:
    def __init__(self, period, layout):
        self.period = period
        self.made = jax.jit(lambda table: {"index": table / 2}, out_shardings=layout.replicated)

    def start(self, params):
        return self.made(params["embedding"]["table"])

    def complete(self, batch, *, step, kept):
        vectors = kept["index"][batch["decoder_target_tokens"]]
        near = (vectors * vectors[:, :1]).mean(-1)
        return {**batch, "decoder_loss_weights": batch["decoder_loss_weights"] * jnp.exp(near)}

    def after(self, step, params, kept):
        return kept if step % self.period else self.start(params)
'''
GIN = """
from __gin__ import dynamic_registration

import nearness

COMPLETER = @nearness.Nearness()
"""


@pytest.fixture
def nearness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Flags of a run with the completer above."""
    (tmp_path / "nearness.py").write_text(MODULE)
    (tmp_path / "nearness.gin").write_text(GIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return [f"--gin_file={tmp_path / 'nearness.gin'}"]


def kept(run: Path) -> np.ndarray:
    (step,) = Checkpoints(run / "checkpoints").steps()
    return np.asarray(Checkpoints(run / "checkpoints").restore_kept(step, None)["index"])


@pytest.mark.slow
def test_an_index_of_every_tenth_step_is_resumed_exactly(tiny: Tiny, nearness: list[str]) -> None:
    settings = {"EVAL_PERIOD": 16, "CHECKPOINTS_KEPT": 1}
    straight = tiny.trained("straight", *nearness, TRAIN_STEPS=16, **settings)
    for steps in (4, 13, 16):
        resumed = tiny.trained("resumed", *nearness, TRAIN_STEPS=steps, **settings)
    assert_same_state(resumed, straight, rows=8, modules=["nearness"])
    assert losses(resumed) == losses(straight)
    np.testing.assert_array_equal(kept(resumed), kept(straight))
    assert_evaluated(straight, lambda *a: tiny.cli(*a, "--module=nearness"), rows=8)

    # An index that is never made again is another one after the tenth step.
    fixed = tiny.trained(
        "fixed",
        *(*nearness, "--gin.nearness.Nearness.period=1000"),
        TRAIN_STEPS=16,
        **settings,
    )
    same = [losses(fixed)[step] == losses(straight)[step] for step in range(1, 17)]
    assert same == [True] * 10 + [False] * 6
    refused = tiny.train(
        "resumed", *(*nearness, "--gin.nearness.Nearness.period=1000"), TRAIN_STEPS=20, **settings
    )
    assert refused.status == 1
    assert "data.completer" in refused.err

"""Runs in phases: other lengths, rows and objectives; held-out text that cannot be cut."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_run import WORDS, Tiny, assert_same_state, finish, losses

from t5x_like.core import partitioning
from t5x_like.data.corpora.user_corpus import user_corpus
from t5x_like.data.dataset import Data
from t5x_like.data.task import Task
from t5x_like.data.vocabulary_choice import VocabularyChoice
from t5x_like.objectives.xlnet import XLNet
from t5x_like.runs.batches import PhaseBatches
from t5x_like.runs.phases import RunPhase


@pytest.fixture
def tasks(tmp_path: Path) -> tuple[Task, ...]:
    """Training text for 16 carried rows of 64 tokens, and a held-out document."""
    draw = random.Random(0)
    documents = [" ".join(draw.choices(WORDS, k=12)) for _ in range(100)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    return Data(
        corpus=str(tmp_path / "text.txt"),
        read_corpus=lambda named: user_corpus(named, validation=0.01),
        lengths={"inputs": 64},
        objective=XLNet(),
        vocabulary=VocabularyChoice(kind="characters", size=40),
        cache_dir=str(tmp_path / "cache"),
        workers=1,
    ).open()


def batches(tasks: tuple[Task, ...], *, eval_period: int) -> PhaseBatches:
    options = SimpleNamespace(batch_size=16, seed=0, eval_period=eval_period)
    layout = partitioning.make_layout(mesh={"data": -1})
    converter = SimpleNamespace(task_features=("inputs",), pack=False)
    program: Any = None
    run: Any = SimpleNamespace(options=options, layout=layout, feature_converter=converter)
    return RunPhase(0, run, 0).batches(tasks, program)


def test_held_out_text_too_short_to_carry_rows_is_named(tasks: tuple[Task, ...]) -> None:
    with pytest.raises(ValueError, match=r"validation split.*16 rows.*too short.*EVAL_PERIOD=0"):
        batches(tasks, eval_period=10)


def test_without_evaluation_nothing_held_out_is_planned(tasks: tuple[Task, ...]) -> None:
    found = batches(tasks, eval_period=0)
    assert [one.rows for one in found.train] == [16]
    assert not found.validation


PHASES = """
from __gin__ import dynamic_registration
from t5x_like.runs import run
from t5x_like.objectives.noise import corruptions
from t5x_like.objectives import denoising
from t5x_like.objectives.noise import noise_masks

PHASES = (@short/run.Phase(), @wide/run.Phase(), @run.Phase())
short/run.Phase.steps = 2
short/run.Phase.lengths = {'inputs': 32, 'targets': 16}
wide/run.Phase.steps = 2
wide/run.Phase.batch_size = 16
wide/run.Phase.objective = @denoising.Denoising()
denoising.Denoising.noise = @noise_masks.IidNoise()
denoising.Denoising.inputs = @corruptions.CleanTokens()
denoising.Denoising.targets = @corruptions.NoiseTokens()
denoising.Denoising.targets_share = 0.203125
"""


@pytest.fixture
def in_phases(tmp_path: Path) -> str:
    (tmp_path / "phases.gin").write_text(PHASES)
    return f"--gin_file={tmp_path / 'phases.gin'}"


@pytest.mark.slow
def test_phases_have_batches_of_their_own(tiny: Tiny, in_phases: str) -> None:
    """A run that is resumed in each of them, and between them, equals one that is not."""
    command = tiny.flags("straight", in_phases, "--gin.EVAL_PERIOD=2")
    finish(tiny.start(command, devices=8, driver=["--record"]))
    straight = tiny.root / "straight"
    records = map(json.loads, (straight / "rows-0of1.jsonl").read_text().splitlines())
    found = dict.fromkeys((record["step"], len(record["rows"])) for record in records)
    assert [*found][:2] == [(1, 8), (2, 8)]
    assert (1, 16) in found
    for total in (2, 3, 6):
        tiny.trained("resumed", in_phases, "--gin.EVAL_PERIOD=2", TRAIN_STEPS=total)
    assert_same_state(straight, tiny.root / "resumed")
    assert losses(straight) == losses(tiny.root / "resumed")
    assert list(losses(straight)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_phase_cannot_be_moved_behind_a_runs_back(tiny: Tiny, in_phases: str) -> None:
    tiny.trained("run", in_phases, TRAIN_STEPS=3)
    moved = tiny.train("run", in_phases, "--gin.short/run.Phase.steps=1", TRAIN_STEPS=6)
    assert moved.status == 1
    assert "data.phase_2.start: 2 then, 1 now" in moved.err
    dropped = tiny.train("run", TRAIN_STEPS=6)
    assert "data.phase_2.start: 2 then, None now" in dropped.err
    other = tiny.train("run", in_phases, "--gin.wide/run.Phase.batch_size=8", TRAIN_STEPS=6)
    assert "batch_size.phase_2: 16 then, 8 now" in other.err


def test_a_task_with_an_objective_takes_none_from_a_phase(tiny: Tiny, in_phases: str) -> None:
    named = {"CORPUS": None, "MIXTURE_OR_TASK_NAME": "stdlib_docs.span_corruption"}
    result = tiny.train("run", in_phases, **named)
    assert result.status == 1
    assert "phase 2 has an objective, but the task 'stdlib_docs.span_corruption'" in result.err


def test_every_phase_but_the_last_says_how_long_it_is(tiny: Tiny, in_phases: str) -> None:
    result = tiny.train("run", in_phases, "--gin.short/run.Phase.steps=None")
    assert result.status == 1
    assert "PHASES: each phase needs a number of steps, except the last" in result.err
    assert not (tiny.root / "run").exists()

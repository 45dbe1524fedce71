"""A run stops and resumes at any moment, and loses nothing but time."""

from __future__ import annotations

import random
import signal

import jax
import pytest
from tiny_run import Tiny, assert_same_state, files, finish, losses, recorded_rows, saved_steps

from t5x_like.training.logs.metrics_file import read_metrics


@pytest.mark.slow
def test_resumed_and_extended_runs_equal_a_straight_one(tiny: Tiny) -> None:
    straight = tiny.trained("straight", TRAIN_STEPS=8, EVAL_PERIOD=4)
    resumed = tiny.trained("resumed", TRAIN_STEPS=4, EVAL_PERIOD=4)
    assert saved_steps(resumed) == [4]
    extended = tiny.train("resumed", TRAIN_STEPS=8, EVAL_PERIOD=4)
    assert "Resuming from step 4" in extended.err
    assert_same_state(straight, resumed)
    assert list(losses(straight)) == list(range(1, 9))
    assert losses(straight) == losses(resumed)
    held_out = [
        line for line in read_metrics(resumed / "metrics.jsonl") if "eval/text/loss" in line
    ]
    assert [line["step"] for line in held_out] == [4, 8]


@pytest.mark.slow
def test_finished_run_trains_no_further(tiny: Tiny) -> None:
    run = tiny.trained("run", TRAIN_STEPS=2)
    before = files(run)
    again = tiny.train("run", TRAIN_STEPS=2)
    assert again.status == 0
    assert "Already finished: step 2 of 2." in again.err
    after = files(run)
    assert {n: b for n, b in after.items() if "tensorboard" not in n} == {
        n: b for n, b in before.items() if "tensorboard" not in n
    }


@pytest.mark.slow
def test_other_seed_makes_another_run(tiny: Tiny) -> None:
    one, other = (losses(tiny.trained(f"seed{n}", TRAIN_STEPS=2, SEED=n)) for n in (0, 1))
    assert one[1] != other[1]


@pytest.mark.slow
def test_kills_at_random_moments_change_nothing(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log shows progress; the kill comes at a random moment after it, often within a save."""
    steps = {"TRAIN_STEPS": 60, "EVAL_PERIOD": 15}
    command = tiny.flags("killed", **steps, CHECKPOINT_PERIOD=4)
    draw = random.Random(2)
    moments = sorted(draw.sample(range(20), 3))
    for moment in moments:
        kill = ["--kill_at", str(moment), "--delay", str(draw.random() * 0.2)]
        finish(tiny.start(command, driver=kill), status=-signal.SIGKILL)
    (last,) = finish(tiny.start(command))
    assert "Resuming from step" in last.err
    # This compiles again, as on another day.
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    finish(tiny.start(tiny.flags("straight", **steps)))
    assert_same_state(tiny.root / "killed", tiny.root / "straight")
    assert losses(tiny.root / "killed") == losses(tiny.root / "straight")


@pytest.mark.slow
def test_sigterm_saves_and_leaves_with_its_own_status(tiny: Tiny) -> None:
    command = tiny.flags("run", TRAIN_STEPS=2000)
    stop = ["--kill_at", "5", "--signal", str(int(signal.SIGTERM))]
    finish(tiny.start(command, driver=stop), status=3)
    (step,) = saved_steps(tiny.root / "run")
    assert step >= 5
    again = tiny.train("run", TRAIN_STEPS=step + 2)
    assert f"Resuming from step {step}" in again.err
    assert list(losses(tiny.root / "run")) == list(range(1, step + 3))


@pytest.mark.slow
def test_another_number_of_devices_sees_the_same_rows(tiny: Tiny) -> None:
    """The first part runs on 8 devices and the second on 1; another run is whole on 2."""
    (straight,) = finish(
        tiny.start(tiny.flags("straight", TRAIN_STEPS=8), devices=2, driver=["--record"])
    )
    assert "Starting from scratch" in straight.err
    for steps, devices in ((3, 8), (8, 1)):
        command = tiny.flags("moved", TRAIN_STEPS=steps)
        finish(tiny.start(command, devices=devices, driver=["--record"]))
    rows, moved = (recorded_rows(tiny.root / name) for name in ("straight", "moved"))
    assert rows == moved
    assert [sorted(rows[step]) for step in range(1, 9)] == [list(range(8))] * 8
    want = losses(tiny.root / "straight")
    assert losses(tiny.root / "moved") == pytest.approx(want, rel=1e-4)


def test_this_process_has_the_devices_the_tests_speak_of() -> None:
    assert jax.device_count() == 8

"""The loop: it finishes, resumes, and stops on request."""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_model as tiny
from etils import epath

from t5x_like.core import global_batches
from t5x_like.training import loop, step
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.checkpointing.ranking import saved_metrics
from t5x_like.training.health import ending
from t5x_like.training.health.bad_steps import BadStepError
from t5x_like.training.health.safeguards import Safeguards
from t5x_like.training.health.watch import Watch
from t5x_like.training.logs.metrics_file import read_metrics
from t5x_like.training.logs.run_log import RunLog
from t5x_like.training.periods import Periods

WHERE = {"data": 2, "tensor": 2}


@functools.cache
def program() -> step.Program:
    return tiny.build(None, tiny.layout(**WHERE), microbatches=2, gradient_clip=1.0)


def train(
    directory: Path,
    total: int,
    *,
    batches: Callable[[int], Iterator[Any]] | None = None,
    evaluate: bool = True,
    later: Sequence[tiny.Phase] = (),
    initial: Callable[[Any], Any] | None = None,
) -> tuple[loop.Outcome, str]:
    """A run with a log line every 2 steps, an evaluation every 4, a checkpoint every 3."""
    where, out = tiny.layout(**WHERE), io.StringIO()

    def held_out(params: Any) -> dict[str, float]:
        loss = program().evaluation()(params, tiny.batch(where, 99))["loss"]
        return {"tiny/loss": float(loss[0] / loss[1])}

    first = tiny.Phase(
        program=program(),
        batches=batches or functools.partial(tiny.batches, where),
        evaluate=held_out if evaluate else None,
    )
    outcome = loop.train(
        [first, *later],
        key=jax.random.key(7),
        checkpoints=Checkpoints(directory / "checkpoints"),
        metadata={"who": "tiny"},
        watch=Watch(
            RunLog(directory, total_steps=total, stream=out, tensorboard=False),
            Periods(train_steps=total, eval_period=4, checkpoint_period=3, log_period=2),
            safeguards=Safeguards(),
        ),
        initial=initial,
    )
    return outcome, out.getvalue()


def final_state(directory: Path, abstract: step.TrainState | None = None) -> step.TrainState:
    checkpoints = Checkpoints(directory / "checkpoints")
    restored = checkpoints.restore_latest(lambda _: abstract or program().abstract_state)
    assert restored is not None
    assert restored.metadata["who"] == "tiny"
    return restored.state


def losses(directory: Path) -> dict[tuple[int, str], float]:
    return {
        (line["step"], name): line[name]
        for line in read_metrics(directory / "metrics.jsonl")
        for name in ("train/loss", "eval/tiny/loss")
        if name in line
    }


def calls_at(n: int, action: Callable[[], Any]) -> Callable[[int], Iterator[Any]]:
    """The usual batches, with an action just before the batch of step n."""

    def batches(start: int) -> Iterator[Any]:
        for position, batch in enumerate(tiny.batches(tiny.layout(**WHERE), start), start):
            if position == n:
                action()
            yield batch

    return batches


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("uninterrupted")
    assert train(directory, 10)[0] == loop.Outcome("finished", 10)
    return directory


@pytest.mark.slow
def test_log_evaluations_and_checkpoints_come_when_due(uninterrupted: Path) -> None:
    found = losses(uninterrupted)
    assert [n for n, name in found if name == "train/loss"] == [2, 4, 6, 8, 10]
    assert [n for n, name in found if name == "eval/tiny/loss"] == [4, 8, 10]
    assert Checkpoints(uninterrupted / "checkpoints").steps() == [6, 9, 10]
    lines = [json.loads(x) for x in (uninterrupted / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 4, 6, 8, 8, 10, 10]
    for name in ("tokens_per_second", "steps_per_second", "input_wait", "goodput", "grad_norm"):
        assert f"train/{name}" in lines[0]


def test_logged_losses_are_weighted_means_over_the_steps(uninterrupted: Path) -> None:
    where = tiny.layout(**WHERE)
    state, pairs = program().init(jax.random.key(7)), []
    for n in range(4):
        state, metrics = program().step(state, tiny.batch(where, n), jax.random.key(7))
        pairs.append(np.array(metrics["loss"]))
    total, weight = np.sum(pairs[2:], axis=0)
    assert losses(uninterrupted)[4, "train/loss"] == pytest.approx(total / weight, rel=1e-6)


def test_a_finished_run_is_left_alone_and_can_be_extended(tmp_path: Path) -> None:
    def never(start: int) -> Iterator[Any]:
        raise AssertionError("no data is needed")

    assert train(tmp_path, 4)[0] == loop.Outcome("finished", 4)
    before = (tmp_path / "metrics.jsonl").read_text()
    outcome, text = train(tmp_path, 4, batches=never)
    assert outcome == loop.Outcome("already_finished", 4)
    assert "Already finished: step 4 of 4" in text
    assert (tmp_path / "metrics.jsonl").read_text() == before
    outcome, text = train(tmp_path, 6)
    assert outcome == loop.Outcome("finished", 6)
    assert "Resuming from step 4" in text


def test_a_crash_loses_nothing_but_time(tmp_path: Path, uninterrupted: Path) -> None:
    """It crashes between checkpoints and after one; states and losses are equal to the last bit."""

    class CrashError(Exception):
        pass

    def crash() -> None:
        raise CrashError

    for n in (5, 6):
        with pytest.raises(CrashError):
            train(tmp_path, 10, batches=calls_at(n, crash))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "train/loss": 1')  # what a kill leaves behind
    assert train(tmp_path, 10)[0] == loop.Outcome("finished", 10)
    tiny.assert_same(final_state(tmp_path), final_state(uninterrupted))
    # After a resume from 3, the line of step 4 covers that step alone, and not 3 and 4.
    got, want = losses(tmp_path), losses(uninterrupted)
    assert got.pop((4, "train/loss")) != want.pop((4, "train/loss"))
    assert got == want


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, "preempted"), (signal.SIGINT, "interrupted")]
)
def test_a_signal_saves_and_leaves_and_says_which_it_was(
    tmp_path: Path, uninterrupted: Path, number: signal.Signals, status: str
) -> None:
    handler = signal.getsignal(number)
    ask = functools.partial(os.kill, os.getpid(), number)
    outcome, _ = train(tmp_path, 10, batches=calls_at(4, ask))
    assert outcome.status == status
    assert json.loads((tmp_path / "summary.json").read_text())["status"] == status
    assert 5 <= outcome.step <= 7, "at the latest when the metrics of the step have been read"
    assert Checkpoints(tmp_path / "checkpoints").steps()[-1] == outcome.step
    assert signal.getsignal(number) == handler
    assert train(tmp_path, 10)[0] == loop.Outcome("finished", 10)
    tiny.assert_same(final_state(tmp_path), final_state(uninterrupted))


@pytest.mark.parametrize("number", [8, 10])
def test_an_evaluation_that_leaving_left_out_is_made_up(
    tmp_path: Path, uninterrupted: Path, number: int
) -> None:
    """That of the last step too: without it the run is not finished."""
    ask = functools.partial(os.kill, os.getpid(), signal.SIGTERM)
    outcome, _ = train(tmp_path, 10, batches=calls_at(number - 1, ask))
    assert outcome == loop.Outcome("preempted", number)
    assert (number, "eval/tiny/loss") not in losses(tmp_path)
    assert train(tmp_path, 10)[0] == loop.Outcome("finished", 10)
    assert losses(tmp_path) == losses(uninterrupted)
    ranked = saved_metrics(epath.Path(tmp_path / "checkpoints" / str(number)))
    assert ranked["tiny/loss"] == losses(tmp_path)[number, "eval/tiny/loss"]
    assert train(tmp_path, 10)[0] == loop.Outcome("already_finished", 10)


def test_a_loss_that_is_not_finite_is_never_saved(tmp_path: Path) -> None:
    """The bad batch belongs to a step at which a checkpoint is due."""

    def batches(start: int) -> Iterator[Any]:
        for n, batch in enumerate(tiny.batches(tiny.layout(**WHERE), start), start):
            yield {**batch, "x": batch["x"] * np.nan} if n == 5 else batch

    with pytest.raises(BadStepError, match=r"Stopped at step 6: \w+ is nan"):
        train(tmp_path, 10, batches=batches)
    assert Checkpoints(tmp_path / "checkpoints").steps() == [3]
    for leaf in jax.tree.leaves(final_state(tmp_path)):
        assert np.isfinite(np.asarray(leaf)).all()
    assert max(line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")) <= 4


def test_data_that_ends_is_told(tmp_path: Path) -> None:
    where = tiny.layout(**WHERE)
    with pytest.raises(ValueError, match="ended after step 2 of 10"):
        train(tmp_path, 10, batches=lambda start: iter([tiny.batch(where, n) for n in range(2)]))


LARGER = 2 * tiny.BATCH


@functools.cache
def larger() -> step.Program:
    options: Any = {"batch_size": LARGER, "microbatches": 2, "gradient_clip": 1.0}
    return tiny.build(None, tiny.layout(**WHERE), **options)


def larger_batches(start: int) -> Iterator[Any]:
    """Batches that hold two of the usual ones."""
    where = tiny.layout(**WHERE)
    mine = global_batches.process_rows(where, LARGER)
    for n in itertools.count(start):
        parts = [tiny.rows(2 * n), tiny.rows(2 * n + 1)]
        rows = {name: np.concatenate([part[name] for part in parts])[mine] for name in parts[0]}
        yield global_batches.to_global(where, rows, rows=mine, batch_size=LARGER)


@pytest.mark.slow
def test_phases_follow_each_other_and_resume_anywhere(tmp_path: Path) -> None:
    """It resumes within each phase and between two, the second of which has larger batches."""
    later = [tiny.Phase(program=larger(), batches=larger_batches, start=6)]
    outcome, text = train(tmp_path / "straight", 10, later=later)
    assert outcome == loop.Outcome("finished", 10)
    assert "A new phase after step 6." in text
    want = final_state(tmp_path / "straight", larger().abstract_state)
    saved = (tmp_path / "straight" / "checkpoints").glob("[0-9]*/metrics/metrics")
    phases = {int(path.parts[-3]): json.loads(path.read_text())["phase"] for path in saved}
    assert phases == {6: 0, 9: 6, 10: 6}  # each belongs to the phase of its step

    # The same by hand: the parameters go on, and the carry of the model is new.
    key, state = jax.random.key(7), program().init(jax.random.key(7))
    batches = tiny.batches(tiny.layout(**WHERE), 0)
    for _ in range(6):
        state, _ = program().step(state, next(batches), key)
    state = dataclasses.replace(state, carry=larger().init(key).carry)
    batches = larger_batches(0)
    for _ in range(4):
        state, _ = larger().step(state, next(batches), key)
    tiny.assert_same(state, want)

    for stop in (5, 6, 7):
        train(tmp_path / str(stop), stop, later=later if stop > 6 else ())
        _, text = train(tmp_path / str(stop), 10, later=later)
        assert f"Resuming from step {stop}" in text
        tiny.assert_same(final_state(tmp_path / str(stop), larger().abstract_state), want)


@pytest.mark.slow
def test_a_run_starts_from_given_parameters_and_its_average_too(tmp_path: Path) -> None:
    asked = []

    def initial(params: Any) -> Any:
        asked.append(params)
        return jax.tree.map(lambda x: 1.1 * x, params)

    averaging = tiny.build(None, tiny.layout(**WHERE), ema_decay=0.5)
    phase = tiny.Phase(
        program=averaging, batches=functools.partial(tiny.batches, tiny.layout(**WHERE))
    )
    options: Any = {
        "key": jax.random.key(7),
        "metadata": {},
        "initial": initial,
    }
    for total in (1, 2):
        loop.train(
            [phase],
            checkpoints=Checkpoints(tmp_path / "checkpoints"),
            watch=Watch(
                RunLog(tmp_path, total_steps=total, stream=io.StringIO(), tensorboard=False),
                Periods(train_steps=total),
                safeguards=Safeguards(),
            ),
            **options,
        )
    assert len(asked) == 1, "not where a run is resumed"
    key, state = jax.random.key(7), averaging.init(jax.random.key(7))
    params = jax.tree.map(lambda x: 1.1 * x, state.params)
    state = dataclasses.replace(state, params=params, ema=jax.tree.map(jnp.copy, params))
    batches = tiny.batches(tiny.layout(**WHERE), 0)
    for _ in range(2):
        state, _ = averaging.step(state, next(batches), key)
    saved = Checkpoints(tmp_path / "checkpoints").restore_latest(lambda _: averaging.abstract_state)
    assert saved is not None
    tiny.assert_same(saved.state, state)


@pytest.mark.parametrize(
    ("step", "missing", "by_hand", "status"),
    [
        (6, False, True, "finished"),
        (9, False, False, "finished"),
        (5, False, False, "preempted"),
        (6, True, False, "preempted"),
        (5, False, True, "interrupted"),
    ],
)
def test_a_run_is_finished_at_its_last_step_and_beyond(step, missing, by_hand, status):
    """Beyond: fewer steps are asked for than the run has, and an evaluation was made up."""
    periods = Periods(train_steps=6, checkpoint_period=3, log_period=2)
    found = ending.status(step, periods, stopped_early=False, missing=missing, by_hand=by_hand)
    assert found == status

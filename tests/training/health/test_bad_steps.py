"""Bad numbers: what is bad, and that a run stops, skips or leaves out."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tiny_model as tiny

from t5x_like.training import loop, step
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.health import bad_batches
from t5x_like.training.health.bad_steps import MOST_SKIPPED, BadStepError, Health, new_norm
from t5x_like.training.health.safeguards import Safeguards
from t5x_like.training.health.watch import Watch
from t5x_like.training.logs.run_log import RunLog
from t5x_like.training.periods import Periods

BAD = 6


def metrics(loss: float, **others: float) -> dict[str, tuple[float, float]]:
    return {"loss": (2 * loss, 2.0), **{name: (value, 1.0) for name, value in others.items()}}


def fed(health: Health, *losses: float) -> Health:
    for n, loss in enumerate(losses):
        health.add(n, metrics(loss))
    return health


def test_what_is_not_finite_is_bad() -> None:
    for found in (metrics(np.nan), metrics(1.0, grad_norm=np.inf)):
        with pytest.raises(BadStepError, match="Stopped at step 3: ") as caught:
            Health().add(3, found)
        assert caught.value.of_batch


def test_a_spike_is_bad_where_that_is_asked_for() -> None:
    draw = np.random.default_rng(0)
    usual = [*draw.normal(4.0, 0.1, 200)]
    fed(Health(), *usual, 13.0)
    with pytest.raises(BadStepError, match="LOSS_SPIKE") as caught:
        fed(Health(spike=3.0), *usual, 13.0)
    assert caught.value.of_batch


def test_a_loss_that_stays_above_its_best_is_divergence() -> None:
    draw = np.random.default_rng(0)
    falling = 8.0 * np.exp(-np.arange(2000) / 400) + 2.0 + draw.normal(0, 0.5, 2000)
    fed(Health(rise=1.0), *falling)
    fed(Health(rise=1.0), *falling, *[9.0] * 5, *falling[-100:])  # spikes that pass
    with pytest.raises(BadStepError, match="LOSS_RISE") as caught:
        fed(Health(rise=1.0), *falling, *[5.0] * 300)
    assert not caught.value.of_batch
    later = fed(Health(rise=1.0), *falling)
    later.new_phase()
    fed(later, *[9.0] * 300)  # losses of two phases do not compare


def test_parameters_that_explode_are_divergence() -> None:
    health = Health(norm=10.0)
    health.add(2, metrics(6.0, param_norm=900.0))
    with pytest.raises(BadStepError, match="norm of the parameters"):
        health.add(3, metrics(6.0, param_norm=1100.0))
    # What begins near 0, as word vectors do, may grow to what is usual.
    assert new_norm(30.0, 10_000) == 30.0
    assert new_norm(0.001, 10_000) == pytest.approx(2.0)


def test_it_continues_from_what_a_checkpoint_has() -> None:
    draw = np.random.default_rng(0)
    losses = [*draw.normal(4.0, 0.1, 150)]
    whole, second = fed(Health(rise=1.0), *losses), Health(rise=1.0)
    second.restore(fed(Health(rise=1.0), *losses[:70]).saved())
    assert fed(second, *losses[70:]) == whole


def evaluated(health: Health, *rows: Mapping[str, float], first: int = 2000) -> None:
    """Gives evaluations in turn; each has the loss of text and that of sentences."""
    baselines = {"a/loss": 5.0, "a/sentence_loss": 0.6931, "a/accuracy": 0.1}
    for number, row in enumerate(rows):
        health.compare(first + number, {f"a/{name}": x for name, x in row.items()}, baselines)


def test_evaluations_are_compared_with_frequencies() -> None:
    health = Health(margin=0.1)
    baselines = {"text/loss": 5.0, "text/accuracy": 0.1}
    assert health.compare(20, {"text/loss": 6.0, "text/accuracy": 0.0}, baselines) == ""
    assert "nothing is learned yet" in health.compare(2000, {"text/loss": 6.0}, baselines)
    for loss in (4.0, 4.1, 9.0):
        assert health.compare(3000, {"text/loss": loss}, baselines) == ""
    second = Health(margin=0.1)
    second.restore(json.loads(json.dumps(health.saved())))
    for resumed in (health, second):
        assert resumed.compare(3500, {"text/loss": 9.0}, {}) == ""
        with pytest.raises(BadStepError, match=r"text/loss 5.6 where it is 5\), and was below"):
            resumed.compare(4000, {"text/loss": 5.6}, baselines)


@pytest.mark.parametrize(
    "losses",
    [
        # One loss below its baseline by a hair, then both above: both have fallen all the time.
        [(6.659, 0.6924), (6.032, 0.6968), (5.732, 0.6968), (5.6, 0.71)],
        [(4.9998, 0.6935), (5.011, 0.7), (5.02, 0.7)],
        # Well below by chance, once.
        [(6.5, 0.5), (6.2, 0.8), (5.9, 0.8), (5.7, 0.8)],
        # One overfits while the other falls.
        [(6.0, 0.5), (5.8, 0.5), (5.7, 0.9), (5.6, 1.0), (5.5, 1.1)],
    ],
)
def test_a_run_that_learns_goes_on(losses: list[tuple[float, float]]) -> None:
    rows = [{"loss": loss, "sentence_loss": sentence} for loss, sentence in losses]
    evaluated(Health(margin=0.1), *rows)


def test_nothing_is_compared_while_the_rate_rises_or_without_a_margin() -> None:
    rows = [{"loss": loss, "sentence_loss": 0.7} for loss in (4.0, 4.0, 9.0, 9.0)]
    with pytest.raises(BadStepError):
        evaluated(Health(margin=0.1), *rows)
    evaluated(Health(margin=None), *rows)
    warming = Health(margin=0.1)
    for number, rate in enumerate((0.1, 0.2, 0.3), 1):
        warming.add(number, {**metrics(6.0), "learning_rate": (rate, 1.0)})
    evaluated(warming, *rows)
    warming.add(4, {**metrics(6.0), "learning_rate": (0.2, 1.0)})
    with pytest.raises(BadStepError):
        evaluated(warming, *rows)


def test_what_an_earlier_version_saved_ends_no_run() -> None:
    health = Health(margin=0.1)
    health.restore({"steps": 1, "mean": 6.0, "learned": True})
    evaluated(health, *[{"loss": 9.0, "sentence_loss": 0.7}] * 3)


def test_many_skipped_steps_in_a_row_stop_the_run() -> None:
    health = Health()
    for n in range(MOST_SKIPPED):
        health.add(n, {"loss": (0.0, 0.0), "skipped": (1.0, 1.0)})
    with pytest.raises(BadStepError, match="in a row"):
        health.add(MOST_SKIPPED, {"loss": (0.0, 0.0), "skipped": (1.0, 1.0)})


@functools.cache
def program(bad_numbers: str) -> step.Program:
    return tiny.build(None, tiny.layout(data=2), bad_numbers=bad_numbers)


def train(directory: Path, bad_numbers: str, *, left_out: int = 0) -> str:
    """A run of 10 steps; step 6 has a batch of nan."""
    where, out = tiny.layout(data=2), io.StringIO()

    def batches(start: int) -> Iterator[Any]:
        for n, batch in enumerate(tiny.batches(where, start), start + 1):
            yield {**batch, "x": batch["x"] * np.nan} if n == BAD else batch

    loop.train(
        [tiny.Phase(program=program(bad_numbers), batches=batches)],
        key=jax.random.key(7),
        checkpoints=Checkpoints(directory / "checkpoints"),
        metadata={},
        watch=Watch(
            RunLog(directory, total_steps=10, stream=out, tensorboard=False),
            Periods(train_steps=10, checkpoint_period=3, log_period=2),
            safeguards=Safeguards(),
            times_bad={left_out: 2},
        ),
    )
    return out.getvalue()


def state(directory: Path) -> Any:
    found = Checkpoints(directory / "checkpoints").restore_latest(
        lambda _: program("stop").abstract_state
    )
    assert found is not None
    return found.state


@pytest.mark.slow
def test_a_run_stops_skips_or_leaves_out(tmp_path: Path) -> None:
    stopped, skipped, without = (tmp_path / name for name in ("stopped", "skipped", "without"))
    with pytest.raises(BadStepError, match="Stopped at step 6: "):
        train(stopped, "stop")
    assert Checkpoints(stopped / "checkpoints").steps() == [3]
    (file,) = (stopped / bad_batches.FOLDER).iterdir()
    assert bad_batches.step_of(file) == BAD
    assert np.isnan(bad_batches.read(file)["x"]).all()

    said = train(skipped, "skip")
    assert "Step 6 is skipped" in said
    assert f"t5x_like show {skipped / bad_batches.FOLDER / 'step_6.npz'}" in said
    assert "Leaves out the batch of step 6" in train(without, "stop", left_out=BAD)
    tiny.assert_same(state(skipped), state(without))
    assert int(state(skipped).step) == 10


@pytest.mark.slow
def test_a_batch_that_cannot_be_kept_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / bad_batches.FOLDER).write_text("no folder")
    with pytest.raises(BadStepError, match="Stopped at step 6: "):
        train(tmp_path, "stop")


def test_a_damaged_batch_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "step_7.npz"
    path.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(ValueError, match=r"step_7.npz is damaged"):
        bad_batches.read(path)
    with pytest.raises(ValueError, match="is not a batch of a bad step"):
        bad_batches.step_of(tmp_path / "other.npz")


@pytest.mark.parametrize("name", ["loss_spike", "loss_rise", "baseline_margin", "stall_minutes"])
@pytest.mark.parametrize("value", ["x", True, -1, float("nan"), (1,)])
def test_limits_of_another_kind_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name.upper()} must be "):
        Safeguards(**{name: value}).check_safeguards()

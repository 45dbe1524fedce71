"""Checkpoints: exact, kept, damaged, refused, opened elsewhere."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import shutil
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tiny_model as tiny
from etils import epath
from jax.sharding import NamedSharding, PartitionSpec
from orbax.checkpoint._src.futures import future

from t5x_like.training import step
from t5x_like.training.checkpointing import checksums, lazy_arrays
from t5x_like.training.checkpointing.checkpoints import CheckpointError, Checkpoints
from t5x_like.training.optimization import optimizers, schedules


@functools.cache
def program() -> step.Program:
    tx = optimizers.adafactor(schedules.rsqrt(), min_dim_size_to_factor=4)
    return tiny.build(tx, tiny.layout(data=4, tensor=2), ema_decay=0.9)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Steps 1, 2 and 3 of a run, with a metadata entry each."""
    where = tiny.layout(data=4, tensor=2)
    state = program().init(jax.random.key(0))
    checkpoints = Checkpoints(tmp_path)
    for n in (1, 2, 3):
        state, _ = tiny.run(program(), where, 1, state=state)
        checkpoints.save(n, state, metadata={"position": n})
    checkpoints.close()
    return tmp_path


def weight_file(directory: Path, step: int, item: str = "params") -> Path:
    """The largest file of a step's item."""
    files = [p for p in (directory / str(step) / item).rglob("*") if p.is_file()]
    return max(files, key=lambda p: p.stat().st_size)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{"data": 4, "tensor": 2}, {"data": 1}, {"fsdp": 8}], ids=str)
def test_a_state_comes_back_on_any_mesh(tmp_path: Path, mesh: dict[str, int]) -> None:
    """Steps that donate the saved state meanwhile do not disturb the save."""
    where = tiny.layout(data=4, tensor=2)
    state, _ = tiny.run(program(), where, 2)
    want = jax.tree.map(np.array, jax.device_get(state))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(2, state, metadata={})
    state, losses = tiny.run(program(), where, 3, state=state)
    checkpoints.close()

    other = tiny.layout(**mesh)
    tx = optimizers.adafactor(schedules.rsqrt(), min_dim_size_to_factor=4)
    reopened = tiny.build(tx, other, ema_decay=0.9)
    restored = Checkpoints(tmp_path).restore_latest(lambda _: reopened.abstract_state)
    assert restored is not None
    assert restored.step == 2
    tiny.assert_same(restored.state, want)
    for leaf, abstract in zip(
        jax.tree.leaves(restored.state), jax.tree.leaves(reopened.abstract_state), strict=True
    ):
        assert leaf.sharding == abstract.sharding
    _, again = tiny.run(reopened, other, 3, state=restored.state)
    np.testing.assert_allclose(again, losses, rtol=2e-5)


@pytest.mark.slow
def test_the_latest_and_the_best_are_kept(tmp_path: Path) -> None:
    state = program().init(jax.random.key(0))
    losses = {1: 3.0, 2: 1.0, 3: 2.0, 4: None, 5: 1.5}
    checkpoints = Checkpoints(tmp_path, keep=2)
    for n, loss in losses.items():
        metrics = {} if loss is None else {"a/loss": loss - 0.5, "b/loss": loss + 0.5, "a/x": 0.0}
        checkpoints.save(n, state, metadata={}, metrics=metrics)
    checkpoints.close()
    assert checkpoints.steps() == [2, 4, 5]
    again = Checkpoints(tmp_path, keep=1)
    again.save(6, state, metadata={}, metrics={"a/loss": 9.0})
    again.close()
    assert again.steps() == [2, 6]


def test_a_step_that_was_evaluated_after_it_was_saved_is_kept_as_the_best(tmp_path: Path) -> None:
    state = program().init(jax.random.key(0))
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, state, metadata={})
    checkpoints.close()
    again = Checkpoints(tmp_path, keep=1)
    again.prepare()
    again.rank(1, {"a/loss": 1.0}, phase=0)
    for n in (2, 3):
        again.save(n, state, metadata={}, metrics={"a/loss": 2.0})
    again.close()
    assert again.saved() == {"steps": [1, 3], "best": 1}


def test_the_best_is_of_the_last_phase_that_was_evaluated(tmp_path: Path) -> None:
    state = program().init(jax.random.key(0))
    checkpoints = Checkpoints(tmp_path, keep=1)
    saved = {1: (1.0, 0), 2: (2.0, 0), 3: (None, 2), 4: (5.0, 2), 5: (6.0, 2)}
    kept = []
    for n, (loss, phase) in saved.items():
        metrics = {} if loss is None else {"a/loss": loss}
        checkpoints.save(n, state, metadata={}, metrics=metrics, phase=phase)
        checkpoints.wait()
        kept.append(checkpoints.steps())
    checkpoints.close()
    assert kept == [[1], [1, 2], [1, 3], [4], [4, 5]]


@pytest.mark.slow
def test_a_clock_that_jumps_by_two_days_ends_no_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orbax counts the seconds of a save by the system's clock."""
    clock = itertools.chain([0.0], itertools.repeat(2 * 24 * 3600.0))
    jumping = types.SimpleNamespace(**{**vars(time), "time": lambda: next(clock)})
    monkeypatch.setattr(future, "time", jumping)
    checkpoints = Checkpoints(tmp_path)
    slow = np.random.default_rng(0).random(2**24)
    checkpoints.save_params(1, {"slow": slow}, metadata={})
    checkpoints.close()
    assert checkpoints.steps() == [1]
    assert next(clock) > 0.0


@pytest.mark.slow
def test_a_declined_save_is_an_error(saved: Path) -> None:
    state = program().init(jax.random.key(0))
    checkpoints = Checkpoints(saved)
    with pytest.raises(CheckpointError, match=r"declined to save step 3 .* steps \[1, 2, 3\]"):
        checkpoints.save(3, state, metadata={})
    checkpoints.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        lambda directory: flip_a_bit(weight_file(directory, 3)),
        lambda directory: flip_a_bit(weight_file(directory, 3, "training")),
        lambda directory: truncate(weight_file(directory, 3, "ema")),
        lambda directory: weight_file(directory, 3).unlink(),
        lambda directory: shutil.rmtree(directory / "3" / "training"),
        lambda directory: truncate(directory / "3" / "metadata" / "metadata"),
        lambda directory: (directory / "3" / "checksums.0of1.json").write_text("{"),
    ],
    ids=["params", "training", "ema", "deleted", "item", "metadata", "checksums"],
)
def test_a_damaged_step_is_passed_over(
    saved: Path, damage: Callable[[Path], Any], caplog: pytest.LogCaptureFixture
) -> None:
    damage(saved)
    checkpoints = Checkpoints(saved)
    with caplog.at_level(logging.WARNING):
        restored = checkpoints.restore_latest(lambda _: program().abstract_state)
    assert restored is not None
    assert (restored.step, restored.metadata) == (2, {"position": 2})
    assert "damaged checkpoint step 3" in caplog.text
    assert len(list((saved / "damaged").glob("3-*"))) == 1
    state, _ = tiny.run(program(), tiny.layout(data=4, tensor=2), 1, state=restored.state)
    checkpoints.save(3, state, metadata={"position": 3})
    checkpoints.close()
    again = Checkpoints(saved).restore_latest(lambda _: program().abstract_state)
    assert again is not None
    assert again.step == 3


@pytest.mark.parametrize("content", ["{", "[1]", '{"loss": "low"}', "[" * 10**5])
def test_damaged_metrics_cost_a_step_its_rank_alone(saved: Path, content: str) -> None:
    """Orbax reads every step's metrics when it opens a directory."""
    (saved / "2" / "metrics" / "metrics").write_text(content)
    checkpoints = Checkpoints(saved)
    checkpoints.prepare()
    checkpoints.close()
    assert checkpoints.steps() == [1, 2, 3]
    (aside,) = (saved / "damaged").iterdir()
    assert (aside / "metrics").read_text() == content
    shutil.rmtree(saved / "3")
    restored = Checkpoints(saved).restore_latest(lambda _: program().abstract_state)
    assert restored is not None
    assert restored.step == 2


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": None},
        {"leaves": []},
        {"leaves": {"params/a": [[-1], "float32"]}},
        {"leaves": {"params/a": [[1], "flaot"]}},
        {"leaves": {"params/a": [[1], "float32"], "params/a/b": [[1], "float32"]}},
    ],
)
def test_a_step_whose_metadata_are_others_is_damaged(
    saved: Path, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Even with the right checksum: anybody can compute it."""
    file = saved / "3" / "metadata" / "metadata"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    checksums.remove(epath.Path(saved / "3"))
    restored = Checkpoints(saved).restore_latest(lambda _: program().abstract_state)
    assert restored is not None
    assert restored.step == 2
    with pytest.raises(CheckpointError, match=r"damaged checkpoint: .*/3/metadata/metadata"):
        Checkpoints(saved).metadata(3)


def test_all_steps_damaged_is_an_error(saved: Path) -> None:
    for n in (1, 2, 3):
        flip_a_bit(weight_file(saved, n))
    with pytest.raises(CheckpointError, match=r"damaged: steps \[3, 2, 1\]"):
        Checkpoints(saved).restore_latest(lambda _: program().abstract_state)
    assert Checkpoints(saved).steps() == [1, 2, 3]


def test_a_step_killed_before_its_checksums_is_used(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (saved / "3" / "checksums.0of1.json").unlink()
    restored = Checkpoints(saved).restore_latest(lambda _: program().abstract_state)
    assert restored is not None
    assert restored.step == 3
    assert "cannot be checked" in caplog.text
    caplog.clear()
    assert Checkpoints(saved).restore_latest(lambda _: program().abstract_state) is not None
    assert caplog.text == "", "the first restart made the list"
    for file in (saved / "3" / "params").rglob("*"):
        if file.is_file():
            truncate(file)
    again = Checkpoints(saved).restore_latest(lambda _: program().abstract_state)
    assert again is not None
    assert again.step == 2


def test_metadata_is_read_and_checked_before_the_weights(saved: Path) -> None:
    for n in (1, 2, 3):
        shutil.rmtree(saved / str(n) / "params")

    def refuse(metadata: Any) -> None:
        raise ValueError(f"other vocabulary at {metadata['position']}")

    checkpoints = Checkpoints(saved, check=refuse)
    assert checkpoints.metadata() == {"position": 3}
    assert checkpoints.metadata(1) == {"position": 1}
    with pytest.raises(ValueError, match="other vocabulary at 3"):
        checkpoints.restore_latest(lambda _: program().abstract_state)


def test_unreadable_metadata_is_passed_over_unless_asked_for(saved: Path) -> None:
    truncate(saved / "3" / "metadata" / "metadata")
    assert Checkpoints(saved).metadata() == {"position": 2}
    with pytest.raises(CheckpointError, match=r"damaged checkpoint: .*3/metadata"):
        Checkpoints(saved).metadata(3)


def test_another_model_is_refused_and_nothing_moved(saved: Path) -> None:
    flip_a_bit(weight_file(saved, 3))  # its description is refused, before its weights are read
    other = tiny.build(square=True)
    with pytest.raises(CheckpointError, match=r"params/wi: \[\[3, 8, 16\], 'float32'\] saved"):
        Checkpoints(saved).restore_latest(lambda _: other.abstract_state)
    with pytest.raises(CheckpointError, match="another model"):
        Checkpoints(saved).restore_params(other.abstract_state.params)
    assert Checkpoints(saved).steps() == [1, 2, 3]


def test_inference_reads_the_averaged_parameters_alone(saved: Path) -> None:
    for n in (1, 2, 3):
        shutil.rmtree(saved / str(n) / "training")
    restored = Checkpoints(saved).restore_params(program().abstract_state.params)
    assert (restored.step, restored.metadata) == (3, {"position": 3})
    state, _ = tiny.run(program(), tiny.layout(data=4, tensor=2), 3)
    tiny.assert_same(restored.state, state.ema)
    assert Checkpoints(saved).restore_params(program().abstract_state.params, step=1).step == 1
    with pytest.raises(CheckpointError, match=r"No step 7 .* \[1, 2, 3\]"):
        Checkpoints(saved).restore_params(program().abstract_state.params, step=7)


def test_parameters_are_read_one_by_one_when_asked_for(saved: Path) -> None:
    abstract = program().abstract_state.params
    opened = Checkpoints(saved).open_params(abstract)
    assert {name: (x.shape, x.dtype) for name, x in opened.state.items()} == {
        name: (x.shape, x.dtype) for name, x in abstract.items()
    }
    read = opened.state["wi"].read()
    assert read.sharding == abstract["wi"].sharding
    shutil.rmtree(saved / "3")
    with pytest.raises(FileNotFoundError):
        np.asarray(opened.state["wo"])
    whole = Checkpoints(saved).restore_params(abstract, step=2).state
    tiny.assert_same(Checkpoints(saved).open_params(abstract, step=2).state, whole)


@pytest.mark.parametrize("alone", [False, True])
def test_small_parameters_are_tried_together_and_large_ones_alone(
    saved: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    read, restored = [], lazy_arrays.restored

    def counted(arrays: Sequence[Any]) -> list[Any]:
        read.append(len(arrays))
        return restored(arrays)

    if alone:
        monkeypatch.setattr(lazy_arrays, "_BYTES_AT_ONCE", 1)
    monkeypatch.setattr(lazy_arrays, "restored", counted)
    abstract = program().abstract_state.params
    Checkpoints(saved).open_params(abstract)
    parameters = len(jax.tree.leaves(abstract))
    assert read == ([1] * parameters if alone else [parameters])


def test_nothing_saved_is_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "new")
    assert checkpoints.restore_latest(lambda _: program().abstract_state) is None
    assert checkpoints.metadata() is None
    assert not (tmp_path / "new").exists()
    with pytest.raises(CheckpointError, match="No checkpoint in"):
        checkpoints.restore_params(program().abstract_state.params)


def test_an_unwritable_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"Cannot write checkpoints to .*file/run"):
        Checkpoints(tmp_path / "file" / "run").prepare()


def test_checksums_list_every_file(saved: Path) -> None:
    listed = json.loads((saved / "3" / "checksums.0of1.json").read_text())
    files = {str(p.relative_to(saved / "3")) for p in (saved / "3").rglob("*") if p.is_file()}
    assert files - set(listed) == {"checksums.0of1.json"}


def test_devices_share_the_writing_of_large_arrays_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight devices hold all; an array is cut if each writes a MiB at least."""
    everywhere = NamedSharding(tiny.layout(data=8).mesh, PartitionSpec())
    arrays = {"small": (8, 3), "large": (8, 2**18)}
    tree = {name: jax.device_put(np.ones(shape), everywhere) for name, shape in arrays.items()}
    cut = []
    slice_of = jax.lax.slice_in_dim
    monkeypatch.setattr(
        jax.lax, "slice_in_dim", lambda x, **of: (cut.append(x.shape), slice_of(x, **of))[1]
    )
    checkpoints = Checkpoints(tmp_path)
    state = step.TrainState(step=np.int32(1), params=tree, opt_state=(), carry=())
    checkpoints.save(1, state, metadata={})
    checkpoints.close()
    assert cut == [(8, 2**18)] * 8

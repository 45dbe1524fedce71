"""Steps that are damaged, unreadable or misnamed are passed over; those of good files are not."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
import tiny_model as tiny
from etils import epath
from saved_steps import flip_a_bit, half, program, replace, truncate, weight_file

from t5x_like.training.checkpointing import checksums
from t5x_like.training.checkpointing.checkpoints import Checkpoints


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


@pytest.mark.parametrize(
    "damage",
    [
        lambda step: half(max((step / "params").rglob("d/*"), key=lambda p: p.stat().st_size)),
        lambda step: replace(step / "params" / "_METADATA", b"tree_metadata", b"tree_metadatb"),
        lambda step: replace(step / "params" / "_METADATA", b'"key": "scale"', b'"key": "sclae"'),
        lambda step: half(step / "params" / "_METADATA"),
        lambda step: (step / "training" / "manifest.ocdbt").write_bytes(b""),
    ],
    ids=["arrays", "names", "a name", "metadata", "manifest"],
)
def test_a_step_that_orbax_cannot_read_is_passed_over_though_its_sums_fit(
    saved: Path, damage: Callable[[Path], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """What was written short is summed up as it is."""
    step = saved / "3"
    damage(step)
    checksums.remove(epath.Path(step))
    checksums.write(epath.Path(step), process=0, processes=1)
    checkpoints = Checkpoints(saved)
    with caplog.at_level(logging.WARNING):
        restored = checkpoints.restore_latest(lambda _: program().abstract_state)
    checkpoints.close()
    assert restored is not None
    assert restored.step == 2
    (line,) = [one.getMessage() for one in caplog.records if "Skipping" in one.getMessage()]
    assert line.startswith(f"Skipping damaged checkpoint step 3 of {saved}: Orbax cannot read it")
    assert "\n" not in line
    assert all(one.exc_info is None for one in caplog.records)
    assert len(list((saved / "damaged").glob("3-*"))) == 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        PermissionError(errno.EACCES, os.strerror(errno.EACCES), "d/1"),
        OSError(errno.EIO, os.strerror(errno.EIO), "d/1"),
        ValueError(f"FAILED_PRECONDITION: Error reading d/1: {os.strerror(errno.EMFILE)}"),
        ValueError("UNAVAILABLE: Error reading d/1: the server does not answer"),
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"),
    ],
    ids=lambda error: f"{type(error).__name__} {error}"[:40],
)
def test_what_may_be_gone_the_next_time_passes_no_step_over(
    saved: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("orbax.checkpoint.StandardCheckpointer.restore", fail)
    with pytest.raises(type(error)) as found:
        Checkpoints(saved).restore_latest(lambda _: program().abstract_state)
    assert found.value is error
    assert Checkpoints(saved).steps() == [1, 2, 3]


def copy(saved: Path) -> None:
    shutil.copytree(saved / "2", saved / "7")


def link(saved: Path) -> None:
    (saved / "7").symlink_to(saved / "2", target_is_directory=True)


def rename(saved: Path) -> None:
    (saved / "2").rename(saved / "7")


@pytest.mark.parametrize("number", [copy, link, rename])
def test_a_step_under_another_number_is_passed_over(
    saved: Path, number: Callable[[Path], Any], caplog: pytest.LogCaptureFixture
) -> None:
    number(saved)
    assert Checkpoints(saved).metadata() == {"position": 3}
    params = program().abstract_state.params
    assert Checkpoints(saved).restore_params(params).step == 3
    restored = Checkpoints(saved).restore_latest(lambda _: program().abstract_state)
    assert restored is not None
    assert restored.step == 3
    assert f"{saved}/7/metadata/metadata: it is that of step 2, whose folder was" in caplog.text
    left = [2, 3] if number is not rename else [3]
    assert Checkpoints(saved).steps() == [1, *left]
    if number is link:
        assert (saved / "2" / "params").exists()

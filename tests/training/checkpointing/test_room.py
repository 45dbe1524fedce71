"""A disk without room for a checkpoint: said before anything is written, in one sentence."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import pytest
from etils import epath

from t5x_like.core import exit_status
from t5x_like.training.checkpointing import room
from t5x_like.training.checkpointing.checkpoint_items import CheckpointError

ITEMS = {"params": {"kernel": jnp.zeros((1000, 1000))}}


def test_a_state_that_does_not_fit_is_refused(tmp_path: Path, monkeypatch) -> None:
    directory = epath.Path(tmp_path)
    room.check(directory, ITEMS, step=7)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000))
    with pytest.raises(room.DiskFullError, match=r"step 7 .* 0.0036 GB, and 0.003 GB") as error:
        room.check(directory, ITEMS, step=7)
    assert error.value.exit_status in exit_status.FINAL


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        ValueError("RESOURCE_EXHAUSTED: Failed to write 28139 bytes: No space left on device"),
    ],
)
def test_a_disk_that_becomes_full_meanwhile_is_one_sentence(tmp_path: Path, failure) -> None:
    def saved(error: Exception) -> None:
        with room.explained(epath.Path(tmp_path)):
            raise RuntimeError("cannot schedule new futures") from error

    with pytest.raises(room.DiskFullError, match=r"\)\. Make room, and run the same command again"):
        saved(failure)
    (tmp_path / "3").mkdir()
    with pytest.raises(room.DiskFullError, match=r"Earlier checkpoints are whole\. Make room"):
        saved(failure)
    with pytest.raises(RuntimeError, match="cannot schedule"):
        saved(ValueError("something else"))


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE])
def test_another_failure_is_one_sentence_though_its_causes_are_a_circle(
    tmp_path: Path, code: int
) -> None:
    (tmp_path / "3").mkdir()
    first, second = OSError(code, os.strerror(code)), RuntimeError("a thread raised it again")
    first.__context__, second.__context__ = second, first
    with (
        pytest.raises(CheckpointError, match=rf"{os.strerror(code)}.* Earlier .* are whole"),
        room.explained(epath.Path(tmp_path)),
    ):
        raise second


@pytest.mark.parametrize("code", [errno.EROFS, errno.EPERM, errno.EIO, errno.EFBIG])
def test_a_failure_that_tensorstore_tells_in_words_is_one_sentence(
    tmp_path: Path, code: int
) -> None:
    with (
        pytest.raises(CheckpointError, match=rf"{tmp_path} \({os.strerror(code)}\): .*\.$"),
        room.explained(epath.Path(tmp_path)),
    ):
        raise ValueError(f"UNKNOWN: Error writing local file: {os.strerror(code)} [sources=...]")


def test_errors_that_are_no_failures_of_writing_stay(tmp_path: Path) -> None:
    first, second = KeyError("a"), RuntimeError("b")
    first.__context__, second.__context__ = second, first
    with pytest.raises(RuntimeError, match="b"), room.explained(epath.Path(tmp_path)):
        raise second

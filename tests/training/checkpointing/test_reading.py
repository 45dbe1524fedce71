"""Steps that cannot be read though their checksums fit, or that are not what their folder says."""

from __future__ import annotations

import errno
import functools
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
import pytest
import tiny_model as tiny
from etils import epath

from t5x_like.core import whole_files
from t5x_like.training import step
from t5x_like.training.checkpointing import checksums
from t5x_like.training.checkpointing.checkpoints import CheckpointError, Checkpoints


@functools.cache
def program() -> step.Program:
    return tiny.build(ema_decay=0.9)


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    checkpoints, state = Checkpoints(folder), None
    for n in (1, 2):
        state, _ = tiny.run(program(), tiny.layout(data=1), 1, state=state)
        checkpoints.save(n, state, metadata={"position": n})
    checkpoints.close()
    return folder


@pytest.fixture
def saved(two_steps: Path, tmp_path: Path) -> Path:
    """Steps 1 and 2 of a run."""
    return Path(shutil.copytree(two_steps, tmp_path / "checkpoints"))


def newest(directory: Path) -> tuple[int, int, int]:
    """The step that is found for inference, for an export and for training, in this order."""
    abstract = program().abstract_state
    found = (
        Checkpoints(directory).restore_params(abstract.params),
        Checkpoints(directory).open_params(abstract.params),
        Checkpoints(directory).restore_latest(lambda _: abstract),
    )
    assert found[2] is not None
    return found[0].step, found[1].step, found[2].step


def shortened(item: Path) -> None:
    for file in item.glob("d/*"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def with_another_key(item: Path) -> None:
    file = item / "_METADATA"
    file.write_bytes(file.read_bytes().replace(b"key_type", b"kex_type", 1))


def with_short_metadata(item: Path) -> None:
    file = item / "_METADATA"
    file.write_bytes(file.read_bytes()[:-9])


def of_another_item(item: Path) -> None:
    shutil.rmtree(item)
    shutil.copytree(item.parent / "training", item)


def without_parts(item: Path) -> None:
    shutil.rmtree(item / "d")


@pytest.mark.parametrize(
    "damage",
    [shortened, with_another_key, with_short_metadata, of_another_item, without_parts],
    ids=lambda damage: damage.__name__,
)
def test_a_step_that_cannot_be_read_is_passed_over_though_its_checksums_fit(
    saved: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """What was written wrongly, or forged, has checksums of what is there."""
    damage(saved / "2" / "ema")
    checksums.remove(epath.Path(saved / "2"))
    checksums.write(epath.Path(saved / "2"), process=0, processes=1)
    assert newest(saved) == (1, 1, 1)
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 4
    for record in said[:3]:
        line = record.getMessage()
        assert line.startswith(f"Skipping damaged checkpoint step 2 of {saved}: ema cannot be read")
        assert "\n" not in line
        assert not record.exc_info
    assert "Moved step 2 to" in said[3].getMessage()


def test_a_step_without_marks_and_sums_is_passed_over_in_a_line(
    saved: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    for pattern in ("**/manifest.ocdbt", "**/commit_success.txt", "*CHECKPOINT_METADATA", "check*"):
        for file in [*(saved / "2").glob(pattern)]:
            file.unlink()
    assert newest(saved) == (1, 1, 1)
    assert not any(record.exc_info or record.exc_text for record in caplog.records)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ESTALE, "Stale file handle"),
        PermissionError(errno.EACCES, "Permission denied"),
        MemoryError("no memory"),
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"),
        ValueError('PERMISSION_DENIED: Error reading "wi/.zarray": [OS error 13: EACCES]'),
        ValueError("UNAVAILABLE: the bucket does not answer"),
    ],
    ids=repr,
)
def test_an_error_that_may_pass_moves_nothing_and_takes_no_older_step(
    saved: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    checksums.remove(epath.Path(saved / "2"))

    def fail(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise error

    abstract = program().abstract_state
    with monkeypatch.context() as patched:
        patched.setattr(ocp.Checkpointer, "restore", fail)
        with pytest.raises(CheckpointError, match=r"^Step 2 of .*: params cannot be read: "):
            Checkpoints(saved).restore_latest(lambda _: abstract)
        with pytest.raises(CheckpointError, match="no older step is taken"):
            Checkpoints(saved).restore_params(abstract.params)
    assert sorted(path.name for path in saved.iterdir()) == ["1", "2"]
    assert newest(saved) == (2, 2, 2)


def test_a_read_that_fails_once_is_made_again(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, times = ocp.Checkpointer.restore, []

    def fail_once(self: Any, *args: Any, **kwargs: Any) -> Any:
        times.append(1)
        if len(times) == 1:
            raise ValueError("DATA_LOSS: CRC-32C checksum verification failed")
        return read(self, *args, **kwargs)

    monkeypatch.setattr(ocp.Checkpointer, "restore", fail_once)
    assert newest(saved) == (2, 2, 2)


def copied(directory: Path) -> None:
    shutil.copytree(directory / "1", directory / "3")


def linked(directory: Path) -> None:
    (directory / "3").symlink_to("1")


@pytest.mark.parametrize("make", [copied, linked], ids=lambda make: make.__name__)
def test_a_step_under_another_number_is_passed_over(
    saved: Path, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    make(saved)
    abstract = program().abstract_state
    assert Checkpoints(saved).metadata() == {"position": 2}
    with pytest.raises(CheckpointError, match=r"3: its state is that of step 1"):
        Checkpoints(saved).metadata(3)
    with pytest.raises(CheckpointError, match=r"steps \[3\]"):
        Checkpoints(saved).restore_params(abstract.params, step=3)
    assert Checkpoints(saved).abstract_params().keys() == abstract.params.keys()
    assert newest(saved) == (2, 2, 2)
    assert f"Skipping checkpoint {saved / '3'}: its state is that of step 1" in caplog.text
    assert Checkpoints(saved).steps() == [1, 2]


def test_a_step_of_an_earlier_release_under_another_number_is_passed_over(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its document does not say the number; its state does."""
    read = whole_files.read_json
    monkeypatch.setattr(
        whole_files,
        "read_json",
        lambda path: {name: value for name, value in read(path).items() if name != "step"},
    )
    copied(saved)
    restored = Checkpoints(saved).restore_latest(lambda _: program().abstract_state)
    assert restored is not None
    assert restored.step == 2


def test_what_a_kill_after_the_last_save_left_is_removed_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that keeps more steps makes what one has that was killed before Orbax removed some."""
    checkpoints, state = Checkpoints(tmp_path, keep=9), None
    for n, loss in enumerate((3.0, 1.0, 2.5, 2.0, 1.5), start=1):
        state, _ = tiny.run(program(), tiny.layout(data=1), 1, state=state)
        checkpoints.save(n, state, metadata={}, metrics={"a/loss": loss})
    checkpoints.close()
    abstract = program().abstract_state
    Checkpoints(tmp_path, keep=2).restore_params(abstract.params)
    assert Checkpoints(tmp_path).steps() == [1, 2, 3, 4, 5], "reading removes nothing"
    again = Checkpoints(tmp_path, keep=2)
    again.prepare()
    assert again.restore_latest(lambda _: abstract) is not None
    again.close()
    assert again.saved() == {"steps": [2, 4, 5], "best": 2}
    assert "Removes step 3" in caplog.text

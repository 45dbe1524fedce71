"""A disk that fails while a run trains: one sentence, no traceback, and an end."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_run import Tiny, saved_steps

from t5x_like.core import exit_status

EVERY = 8


@contextlib.contextmanager
def disk(where: Path, *, options: str) -> Iterator[Path]:
    """A small disk in memory; skips the test where it cannot be made."""
    where.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(where)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("only root may mount a disk")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def fill(where: Path) -> None:
    """Takes all bytes of a disk."""
    with contextlib.suppress(OSError), (where / "filling").open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "filled"),
    [("size=20m", True), ("size=20m,nr_inodes=110", False)],
    ids=["bytes", "inodes"],
)
def test_a_disk_that_is_full_during_a_save_ends_the_run_in_a_sentence(
    tiny: Tiny, options: str, filled: bool
) -> None:
    with disk(tiny.root / "disk", options=options) as where:
        run = where / "run"
        command = tiny.flags(
            "run", MODEL_DIR=str(run), TRAIN_STEPS=3000, CHECKPOINT_PERIOD=EVERY, LOG_PERIOD=EVERY
        )
        process = tiny.start(command)
        try:
            while filled and not (run / "checkpoints" / str(EVERY)).exists():
                assert process.poll() is None, process.communicate()[1]
                time.sleep(0.05)
            if filled:
                fill(where)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
        assert process.returncode == exit_status.NO_ROOM, said
        assert said.splitlines()[-1].startswith("error: No room for ")
        assert "Traceback" not in said
        assert "absl" not in said
        (where / "filling").unlink(missing_ok=True)
        assert EVERY in saved_steps(run)


def test_brackets_in_the_directory_are_refused_before_any_work(tiny: Tiny) -> None:
    """Orbax takes them for a pattern, and merges none of the files that it has written."""
    result = tiny.train("br[y]")
    assert result.status == 1
    assert "has brackets" in result.err
    assert [path.name for path in tiny.root.iterdir()] == []


@pytest.mark.slow
def test_a_cache_on_a_full_disk_is_one_sentence(tiny: Tiny, text: Path) -> None:
    with disk(tiny.root / "disk", options="size=16k") as where:
        command = ("cache", "--corpus", str(text), "--vocabulary", "bytes")
        result = tiny.cli(*command, "--cache_dir", str(where))
        assert result.status == 1
        last = result.err.splitlines()[-1]
        assert last.startswith("error: [Errno 28] No space left on device: ")
        assert str(where) in last
        assert not [*where.rglob("*.tmp")]

"""A disk that fails while a run trains: one sentence, no traceback, and an end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from disks import disk, fill
from tiny_run import Result, Tiny, finish, saved_steps

from t5x_like.core import exit_status

EVERY = 8


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


def test_an_import_is_not_written_to_brackets(tmp_path: Path, cli: Callable[..., Result]) -> None:
    target = tmp_path / "im[port]"
    result = cli("import", "--from", str(tmp_path / "nothing"), "--to", str(target))
    assert result.status == 1
    assert "has brackets" in result.err
    assert not target.exists()


@pytest.mark.slow
def test_brackets_elsewhere_change_nothing(tiny: Tiny, tmp_path: Path) -> None:
    """In the folders of caches, vocabularies, exports and files."""
    place = tmp_path / "[a-c]"
    vocabulary = place / "v[o].model"
    text = tiny.macros["CORPUS"]
    size = "--size=40"
    assert tiny.cli("vocab", f"--corpus={text}", size, f"--output={vocabulary}").status == 0
    given = {"CACHE_DIR": str(place / "cache"), "VOCABULARY": str(vocabulary), "TRAIN_STEPS": 1}
    run = tiny.trained("run", **given)
    for argv in (
        ("export", f"--from={run}", f"--to={place / 'hf'}"),
        ("import", f"--from={place / 'hf'}", f"--to={tmp_path / 'imported'}"),
        ("export", f"--from={tmp_path / 'imported'}", f"--to={place / 'again'}"),
        ("plot", str(run), f"--output={place / 'plot.png'}"),
    ):
        result = tiny.cli(*argv)
        assert result.status == 0, result.err
    weights = {(place / name / "model.safetensors").read_bytes() for name in ("hf", "again")}
    assert len(weights) == 1


@pytest.mark.slow
def test_too_few_open_files_for_data_workers_are_one_sentence(tiny: Tiny) -> None:
    limited = ("sh", "-c", 'ulimit -n 72; exec "$@"', "sh")
    process = tiny.start(tiny.flags("run", DATA_WORKERS=3), prefix=limited)
    (result,) = finish(process, status=exit_status.ERROR)
    last = result.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert "Too many open files" in last
    assert "`ulimit -n`" in last
    assert "DATA_WORKERS" in last
    assert "Traceback" not in result.err


@pytest.mark.slow
def test_a_cache_on_a_full_disk_is_one_sentence(tiny: Tiny, text: Path) -> None:
    with disk(tiny.root / "disk", options="size=16k") as where:
        command = ("cache", "--corpus", str(text), "--vocabulary", "bytes")
        result = tiny.cli(*command, "--cache_dir", str(where))
        assert result.status == exit_status.NO_ROOM
        last = result.err.splitlines()[-1]
        assert last.startswith("error: [Errno 28] No space left on device: ")
        assert str(where) in last
        assert not [*where.rglob("*.tmp")]

"""What commands say of a run whose files are damaged, and of files that are not there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from etils import epath
from tiny_run import Result, Tiny, saved_steps

from t5x_like.core.buckets import storage
from t5x_like.training.checkpointing import checksums

Cli = Callable[..., Result]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def run(tiny: Tiny, shared: Path, text: Path, cli: Cli) -> Path:
    """A run with steps 2 and 4, to be damaged; `tiny` resumes it."""
    if not (shared / "run").exists():
        Tiny(shared, cli, {"CORPUS": str(text)}).trained("run", TRAIN_STEPS=4, CHECKPOINT_PERIOD=2)
    shutil.copytree(shared / "cache", tiny.root / "cache")
    return Path(shutil.copytree(shared / "run", tiny.root / "run"))


def commands(run: Path, target: Path) -> list[list[str]]:
    return [
        ["eval", str(run), "--batch_size=8", "--batches=1"],
        ["predict", str(run), "a ___ b"],
        ["export", f"--from={run}", f"--to={target}"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unreadable", "copied"])
def test_a_step_that_is_none_is_left_out_by_every_command(
    kind: str, run: Path, tiny: Tiny, caplog: pytest.LogCaptureFixture
) -> None:
    steps = run / "checkpoints"
    if kind == "unreadable":
        for file in (steps / "4" / "params").glob("d/*"):
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        checksums.remove(epath.Path(steps / "4"))
        checksums.write(epath.Path(steps / "4"), process=0, processes=1)
        said, good = f"Skipping damaged checkpoint step 4 of {steps}: params cannot be read", 2
    else:
        shutil.copytree(steps / "2", steps / "5")
        said, good = f"Skipping checkpoint {steps / '5'}: its state is that of step 2", 4
    for argv in commands(run, tiny.root / "exported"):
        caplog.clear()
        done = tiny.cli(*argv)
        assert done.status == 0, done.err
        assert [said in line for line in caplog.messages] == [True]
        assert argv[0] == "predict" or f"step {good}" in done.out
    resumed = tiny.train("run", TRAIN_STEPS=6, CHECKPOINT_PERIOD=2)
    assert resumed.status == 0, resumed.err
    assert f"Resuming from step {good} in" in resumed.err
    assert saved_steps(run) == [2, 4, 6]


@pytest.mark.slow
def test_a_damaged_vocabulary_is_named_by_its_place_in_the_run(run: Path, tiny: Tiny) -> None:
    for damage in (
        lambda: (run / "vocabulary" / "vocabulary.json").write_text("{"),
        lambda: (run / "vocabulary" / "vocabulary.json").unlink(),
        lambda: (run / "vocabulary").rmdir(),
    ):
        damage()
        for argv in commands(run, tiny.root / "exported")[:2]:
            done = tiny.cli(*argv)
            assert done.status == 1
            assert f"{run}/vocabulary" in done.err.splitlines()[-1]
    assert tiny.train("run", TRAIN_STEPS=5).status == 0
    assert tiny.cli("predict", str(run), "a ___ b").status == 0, "training writes it again"


@pytest.mark.slow
def test_what_is_in_a_bucket_is_named_by_its_address(
    bucket: str, run: Path, tiny: Tiny, tmp_path: Path
) -> None:
    damaged = f"{bucket}/vocabularies/mine.model"
    storage.write(damaged, b"none")
    for argv, place in (
        (["predict", str(run), f"--input={bucket}/none.jsonl"], f"{bucket}/none.jsonl"),
        (["import", f"--from={bucket}/nothing", f"--to={tmp_path}/to"], f"{bucket}/nothing"),
        (tiny.flags("new", VOCABULARY=damaged), damaged),
    ):
        done = tiny.cli(*argv)
        assert done.status == 1
        assert place in done.err.splitlines()[-1]
        assert str(tmp_path / "stage") not in done.err
    there = f"{bucket}/exported"
    assert tiny.cli("export", f"--from={run}", f"--to={there}").status == 0
    assert tiny.cli("import", f"--from={there}", f"--to={tmp_path}/to").status == 0

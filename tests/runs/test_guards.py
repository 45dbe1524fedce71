"""Anything that would ruin a run or hang ends with a message: other hosts and runs, signals."""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import emulators
import pytest
from tiny_run import ROOT, Tiny, finish, losses, saved_steps, write_text

from t5x_like.core import exit_status
from t5x_like.data.cache.lock import sole_writer
from t5x_like.launching import shipping
from t5x_like.training.hosts import code_version


@pytest.mark.slow
def test_hosts_with_other_settings_do_not_train_together(tiny: Tiny) -> None:
    """Hosts differ in a seed, a learning rate that is not a macro, or the code."""
    for other, said in (
        ("--gin.SEED=7", "process 0 has 'SEED = 0', process 1 'SEED = 7'"),
        ("--gin.schedules.rsqrt.scale=0.9", "schedules.rsqrt.scale = 0.9"),
    ):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        join = ("--distributed", f"--coordinator_address={address}", "--num_processes=2")
        command = tiny.flags("run", *join)
        processes = [
            tiny.start([*command, "--process_id=0"]),
            tiny.start([*command, other, "--process_id=1"]),
        ]
        for result in finish(*processes, status=1):
            assert "error: the configuration of process(es) 1 is not that of" in result.err
            assert said in result.err
        assert not (tiny.root / "run").exists()


def test_code_is_told_apart_by_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("x = 1\n")
    before = [*code_version.lines([str(mine)])]
    mine.write_text("x = 2\n")
    after = [*code_version.lines([str(mine)])]
    assert [line.split()[0] for line in {*before} ^ {*after}] == [str(mine)] * 2
    assert any(line.startswith("jax ") for line in before)
    assert any(line.startswith("t5x_like/models/bert.py ") for line in before)


def test_checkout_that_is_not_installed_trains_and_says_so_before_a_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: iter(()))
    assert code_version.versions()["t5x_like"] == "not installed"
    for package in ("", "git+https://host/t5x_like@" + "a" * 40):
        (problem,) = shipping.package_problems(package)
        assert "pip install -e ." in problem


def test_two_runs_do_not_share_a_directory(tiny: Tiny) -> None:
    run = tiny.root / "run"
    with sole_writer(run, lock=".training"):
        result = tiny.train("run")
    assert result.status == 1
    assert f"another run is training in {run}: process {os.getpid()} on " in result.err
    assert not (run / "checkpoints").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_saves_and_says_so(tiny: Tiny, number: signal.Signals) -> None:
    command = tiny.flags("run", TRAIN_STEPS=100_000, LOG_PERIOD=1)
    driver = ["--kill_at", "3", "--signal", str(int(number))]
    (stopped,) = finish(tiny.start(command, driver=driver), status=3)
    (step,) = saved_steps(tiny.root / "run")
    assert f"Saved step {step}; run the same command to resume." in stopped.err
    name = "Ctrl-C" if number == signal.SIGINT else number.name
    assert f"Stopping after {name}: " in stopped.err
    assert max(losses(tiny.root / "run")) == step


@pytest.mark.slow
def test_a_run_that_is_stopped_before_its_first_step_is_to_be_started_again(tiny: Tiny) -> None:
    process = tiny.start(tiny.flags("run", TRAIN_STEPS=100_000))
    assert process.stdout is not None
    while "caching" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    (stopped,) = finish(process, status=exit_status.SAVED)
    assert "nothing to save" in stopped.err
    assert "Traceback" not in stopped.err


@pytest.mark.slow
def test_a_run_goes_on_where_nobody_reads_what_it_says(tiny: Tiny) -> None:
    process = tiny.start(tiny.flags("run", TRAIN_STEPS=4, LOG_PERIOD=1))
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    assert process.wait(timeout=400) == 0
    assert max(losses(tiny.root / "run")) == 4


@pytest.mark.slow
@pytest.mark.parametrize("what", ["text", "vocabulary"])
def test_other_files_under_one_name_are_refused_by_all(tiny: Tiny, what: str) -> None:
    """A text on which a vocabulary is to be trained, whose name has its fingerprint; or that."""
    macros: dict[str, object] = {"CORPUS": "text.txt", "VOCABULARY": None, "VOCAB_SIZE": 200}
    said = "the text (or its vocabulary) of process(es) 1 is not that of"
    if what == "vocabulary":
        macros = {"VOCABULARY": "vocab.txt"}
        said = "the vocabulary of process(es) 1 is not that of"
    coordinator, watch = emulators.free_port(), emulators.free_port()
    command = tiny.flags("run", **macros)
    started = []
    for n in range(2):
        folder = tiny.root / f"host{n}"
        folder.mkdir()
        write_text(folder / "text.txt", 60 + n)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", f"c{n}"]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n")
        joining = [
            *("--distributed", f"--coordinator_address=127.0.0.1:{coordinator}"),
            *(f"--watch_port={watch}", "--num_processes=2", f"--process_id={n}"),
        ]
        started.append(tiny.start([*command, *joining], prefix=["env", "-C", str(folder)]))
    for result in finish(*started, status=1):
        assert said in result.err


@pytest.mark.slow
def test_a_checkpoint_that_one_process_cannot_save_ends_all(tiny: Tiny) -> None:
    """Orbax's processes would wait for each other."""
    steps = {"TRAIN_STEPS": 8, "CHECKPOINT_PERIOD": 4}
    processes = tiny.start_many(tiny.flags("run", **steps), driver=["--fail_save"])
    ended = finish(*processes, status=1)
    assert "the disk does not answer. Those before it are whole" in ended[0].err
    assert all("Step 4 could not be saved in " in one.err for one in ended)
    finish(*tiny.start_many(tiny.flags("run", **steps)))
    assert saved_steps(tiny.root / "run") == [4, 8]


UNGUARDED = """
import sys
import time
from pathlib import Path
from t5x_like.data.cache import writer
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.vocabularies.byte import ByteVocabulary

writer.BLOCK_BYTES = int(sys.argv[3])
corpus = TextFiles(sys.argv[1], separator="line")
writer.write_cache(Path(sys.argv[2]), corpus, ByteVocabulary(), workers=2, progress=False)
"""


@pytest.mark.slow
def test_a_script_without_a_guard_ends(tmp_path: Path, text: Path) -> None:
    """A worker process runs it again and waits for its parent's lock; small text needs none."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)

    def run(cache: str, block: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(script), str(text), str(tmp_path / cache), str(block)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    assert run("small", 1 << 20).returncode == 0
    large = run("large", 1000)
    assert large.returncode == 1
    assert "put the code that trains under `if __name__ == '__main__':`" in large.stderr
    assert re.search(r"CacheError: a worker process ended", large.stderr)


@pytest.mark.slow
def test_where_a_process_is_lost_the_other_names_it_and_all_go_on_later(tiny: Tiny) -> None:
    run = tiny.root / "run"
    processes = tiny.start_many(tiny.flags("run", TRAIN_STEPS=100_000, CHECKPOINT_PERIOD=4))
    while not (run / "checkpoints" / "4").exists():
        assert processes[0].poll() is None, processes[0].communicate()[1]
        time.sleep(0.1)
    processes[1].kill()
    (left,) = finish(processes[0], status=exit_status.LOST)
    finish(processes[1], status=-signal.SIGKILL)
    assert re.search(r"^error: process 1 \(.*\) is lost: its connection", left.err, re.MULTILINE)
    step = saved_steps(run)[-1]
    finish(*tiny.start_many(tiny.flags("run", TRAIN_STEPS=step + 1)))
    assert saved_steps(run)[-1] == step + 1

"""From text in a bucket to an exported model in a bucket, on hosts that share no disk."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import emulators
import faulty_proxy
import pytest
from tiny_run import Result, Tiny, assert_same_state, finish, losses

from t5x_like.core.buckets import storage

STEPS = {"TRAIN_STEPS": 8, "CHECKPOINT_PERIOD": 4, "EVAL_PERIOD": 8}
SAVED = "checkpoints/4/commit_success.txt"
WAIT_SECONDS = 300


def start_many(tiny: Tiny, argv: Sequence[str], disks: str) -> list[subprocess.Popen[str]]:
    """Two hosts, each with a disk of its own for copies."""
    return tiny.start_many(
        argv, env=[{"T5X_LIKE_STAGE": str(tiny.root / f"{disks}{n}")} for n in range(2)]
    )


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    """The run of two hosts on one disk."""
    root = tmp_path_factory.mktemp("straight")
    tiny = Tiny(root, unused, {"CORPUS": str(text)})
    finish(*tiny.start_many(tiny.flags("run", **STEPS)))
    return root / "run"


def unused(*argv: str) -> Result:
    raise AssertionError(argv)


def lose_all(hosts: Sequence[subprocess.Popen[str]], *, after: str) -> None:
    """Kills hosts as soon as an object is there, which they make."""
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while storage.info_of(after) is None:
            assert time.monotonic() < deadline
            assert hosts[0].poll() is None
            time.sleep(0.2)
    finally:
        for process in hosts:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_hosts_without_a_shared_disk_train_as_on_one(
    tiny: Tiny, text: Path, straight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests fail now and then, all hosts are lost once: the run is that of a disk.

    What differs between kinds of buckets is tested with `storage` alone.
    """
    for package in emulators.NEEDS["gs"]:
        pytest.importorskip(package)

    port = emulators.free_port()
    seen = f"http://127.0.0.1:{port}"
    served = emulators.gcs(tiny.root / "gcs", seen_as=seen)
    with served as url, faulty_proxy.faulty(url, port=port, every=0, stale=True) as proxy:
        emulators.make_bucket("gs", url, "mine")
        for variable, value in emulators.variables("gs", seen).items():
            monkeypatch.setenv(variable, value)
        emulators.forget()
        storage.write(f"gs://mine/text/{text.name}", text.read_bytes())
        places = {
            "CORPUS": f"gs://mine/text/{text.name}",
            "CACHE_DIR": "gs://mine/cache",
            "MODEL_DIR": "gs://mine/run",
        }
        command = tiny.flags("unused", **STEPS, **places)
        proxy.every = 80
        lose_all(start_many(tiny, command, "first"), after=f"{places['MODEL_DIR']}/{SAVED}")
        first, _ = finish(*start_many(tiny, command, "second"))
        assert "Resuming from step" in first.err
        assert proxy.done.keys() >= {"503", "429", "cut"}
        proxy.every = 0

        run = storage.path("gs://mine/run")
        assert_same_state(run, straight)
        assert losses(run) == losses(straight)
        assert json.loads((run / "summary.json").read_text())["status"] == "finished"
        said = (run / "log.txt").read_text()
        assert 0 < said.find("start 1 ") < said.find("start 2 ")
        page = tiny.cli("report", str(run), f"--output={tiny.root / 'report.html'}")
        assert page.status == 0, page.err
        assert "There is no" not in (tiny.root / "report.html").read_text()
        export = tiny.cli("export", "--from", str(run), "--to", "gs://mine/exported")
        assert export.status == 0, export.err
        assert "exported/model.safetensors" in storage.files_below("gs://mine")
        assert os.listdir(tiny.root / "second1")
    emulators.forget()

"""Plain hosts: the scripts run in a folder for each host, in place of ssh."""

from __future__ import annotations

import json
import os
import signal

import pytest

from t5x_like.core.exit_status import FINAL


@pytest.fixture
def words(bench) -> list[str]:
    return [
        "--config=ssh",
        "--config.hosts=node1,me@node2",
        f"--config.package={bench.wheel}",
        f"--config.environment={bench.environment}",
        "--config.env=A='b $(c)'",
        "--config.secrets=HF_TOKEN",
        "--config.stop_seconds=20",
        "--config.poll_seconds=0",
    ]


TRAIN = ["--", "train", "--model_dir", "/shared/run"]


def host_file(bench, host: str, name: str):
    process = {"node1": 0, "me@node2": 1}[host]
    return bench.root / "homes" / host / "t5x_like_launches" / "run" / str(process) / name


def test_a_run_starts_on_all_hosts_with_its_words_and_secrets(bench, words, hostile, secret):
    assert bench.launch("run", *words, *TRAIN, *hostile) == 0, bench.err
    bench.wait(lambda: len(bench.trained()) == 2)
    for arguments, variables, folder in bench.trained():
        process = int(arguments[4].removeprefix("--process_id="))
        assert arguments == [
            "train",
            "--distributed",
            "--coordinator_address=node1:8476",
            "--num_processes=2",
            f"--process_id={process}",
            "--model_dir",
            "/shared/run",
            *hostile,
        ]
        assert variables == {"A": "b $(c)", "HF_TOKEN": secret}
        assert folder.endswith(f"run/{process}")
    assert sorted(one[0] for one in bench.attempted()) == ["--process=0", "--process=1"]
    assert not list(bench.root.rglob("leaked"))
    assert host_file(bench, "node1", "secrets.sh").stat().st_mode & 0o777 == 0o600
    for attempt in range(100):
        assert bench.launch("run", "status") == 0
        if bench.out == "node1: done\nme@node2: done\n":
            break
        assert attempt < 99, bench.out


def test_it_starts_again_until_it_is_done(bench, words, monkeypatch):
    bench.write("statuses", "1 137 3 0")
    one = [word.replace("node1,me@node2", "node1") for word in words]
    sleep = bench.root / "bin" / "sleep"
    sleep.write_text("#!/bin/sh\nexec /bin/sleep 0.05\n")
    sleep.chmod(0o755)
    assert bench.launch("run", *one, "--watch", *TRAIN) == 0, bench.err
    assert len(bench.trained()) == 4
    assert "run: 1 done" in bench.err
    assert bench.launch("run", "logs", "--lines=3") == 0
    assert bench.out.splitlines()[-1].endswith("the process ended with exit status 0")
    assert all(line.startswith("[node1] ") for line in bench.out.splitlines())


@pytest.mark.parametrize("status", [n for n in FINAL if n])
def test_some_ends_are_final(bench, words, status):
    bench.write("statuses", str(status))
    assert bench.launch("run", *words, "--watch", *TRAIN) == 1
    assert f"(failed {status})" in bench.err
    assert "is not started again" in bench.err
    assert len(bench.trained()) == 2


def test_stop_saves_and_start_goes_on(bench, words):
    bench.write("statuses", "run")
    assert bench.launch("run", *words, *TRAIN) == 0, bench.err
    bench.wait(lambda: len(bench.trained()) == 2)
    bench.launch("run", "status")
    assert bench.out == "node1: running\nme@node2: running\n"
    assert bench.launch("run") == 1
    assert "a run is under way: stop it first" in bench.out
    assert bench.launch("run", "stop") == 0
    bench.launch("run", "status")
    assert bench.out == "node1: stopped\nme@node2: stopped\n"
    assert "exit status 3" in host_file(bench, "node1", "log").read_text()
    bench.write("statuses", "0")
    assert bench.launch("run", "--watch") == 0, bench.err  # with the words of the first start
    assert len(bench.trained()) == 4


def test_a_process_that_does_not_save_in_time_is_killed(bench, words):
    bench.write("statuses", "run")
    one = [word.replace("node1,me@node2", "node1") for word in words]
    assert bench.launch("run", *one, "--config.stop_seconds=1", *TRAIN) == 0, bench.err
    bench.wait(bench.trained)
    child = int(host_file(bench, "node1", "child").read_text())
    os.kill(child, signal.SIGSTOP)
    assert bench.launch("run", "stop") == 0
    assert "it did not end within 1 seconds: killed" in bench.out
    bench.launch("run", "status")
    assert bench.out == "node1: lost\n"


def test_delete_ends_the_run_and_removes_it(bench, words):
    bench.write("statuses", "run")
    assert bench.launch("run", *words, *TRAIN) == 0, bench.err
    bench.wait(lambda: len(bench.trained()) == 2)
    assert bench.launch("run", "delete") == 0
    assert not host_file(bench, "node1", ".").exists()
    bench.launch("run", "status")
    assert bench.out == "node1: unreachable\nme@node2: unreachable\n"


def test_a_lost_host_starts_again_under_watch(bench, words):
    bench.write("statuses", "run 0")
    one = [word.replace("node1,me@node2", "node1") for word in words]
    assert bench.launch("run", *one, *TRAIN) == 0, bench.err
    bench.wait(bench.trained)
    os.killpg(int(host_file(bench, "node1", "pid").read_text()), signal.SIGKILL)
    assert bench.launch("run", "watch") == 0, bench.err
    assert "run: 1 lost" in bench.err
    assert len(bench.trained()) == 2


def test_gin_files_and_modules_go_along(bench, words):
    (bench.root / "mine").mkdir()
    bench.write("mine/a.gin", "include 'mine/b.gin'\n")
    bench.write("mine/b.gin", "X = 'END'\n")
    bench.write("tasks_of_mine.py", "Y = 1\n")
    named = [
        "--gin_file=mine/a.gin",
        "--module",
        "tasks_of_mine.py",
        "--gin_file=runs/pretrain.gin",
    ]
    assert bench.launch("run", *words, *TRAIN, *named) == 0, bench.err
    bench.wait(lambda: len(bench.trained()) == 2)
    files = host_file(bench, "node1", "files")
    found = {str(p.relative_to(files)) for p in files.rglob("*") if p.is_file()}
    assert found == {"mine/a.gin", "mine/b.gin", "tasks_of_mine.py"}
    assert bench.trained()[0][2].endswith("/files")
    shipped = json.loads((bench.launches / "run/launch.json").read_text())["shipped"]
    assert {f"files/{name}" for name in found} < set(shipped)
    assert "jax==" in host_file(bench, "node1", "constraints.txt").read_text()


def test_a_host_that_fails_is_named(bench, words):
    bench.write("fail", "me@node2 ")
    assert bench.launch("run", *words, *TRAIN) == 1
    assert "on me@node2: exit status 7" in bench.err
    assert not bench.trained()

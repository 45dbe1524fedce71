"""TPU VMs against a stand-in for gcloud, whose hosts are folders."""

from __future__ import annotations

import pytest

PLACE = ["--project=mine", "--zone=us-west4-a", "--quiet"]
TRAIN = ["--", "train", "--model_dir=gs://bucket/run"]


@pytest.fixture
def words(bench) -> list[str]:
    return [
        "--config=tpu_vm",
        "--config.project=mine",
        "--config.zone=us-west4-a",
        f"--config.package={bench.wheel}",
        f"--config.environment={bench.environment}",
        "--config.secrets=HF_TOKEN",
        "--config.poll_seconds=0",
    ]


def verbs(bench) -> list[str]:
    """What gcloud was asked, and which worker."""
    found = []
    for call in bench.calls("gcloud"):
        worker = [word for word in call if word.startswith("--worker=")]
        found.append(" ".join([call[4], *(f"{call[5]} {one}" for one in worker)]))
    return found


def test_it_asks_waits_installs_and_starts(bench, words, hostile):
    bench.write("states", "NONE WAITING_FOR_RESOURCES PROVISIONING ACTIVE")
    more = ["--config.topology=v5e-16", "--config.reserved", "--config.wait_hours=2"]
    assert bench.launch("run", *words, *more, *TRAIN, *hostile) == 0, bench.err
    workers = [f"ssh run --worker={n}" for n in range(4)]
    found = verbs(bench)
    assert found[:5] == ["describe", "create", "describe", "describe", "describe"]
    assert sorted(found[5:]) == sorted(workers * 4)  # unpack, install, secrets, start
    create = bench.calls("gcloud")[1]
    assert create == [
        *"gcloud compute tpus queued-resources create run --node-id=run".split(),
        "--accelerator-type=v5litepod-16",
        "--runtime-version=v2-alpha-tpuv5-lite",
        "--reserved",
        "--valid-until-duration=120m",
        *PLACE,
    ]
    bench.wait(lambda: len(bench.trained()) == 4)
    assert bench.trained()[0][0] == [
        "train",
        "--distributed",
        "--model_dir=gs://bucket/run",
        *hostile,
    ]
    assert "costs money until: t5x_like launch run delete" in bench.err


def test_a_slice_that_is_there_is_used(bench, words):
    assert bench.launch("run", *words, *TRAIN) == 0, bench.err
    assert "create" not in verbs(bench)


def test_several_slices(bench, words):
    bench.write("states", "NONE ACTIVE")
    more = ["--config.slices=2", "--config.topology=v5p-16", "--config.network=n"]
    assert bench.launch("run", *words, *more, *TRAIN) == 0, bench.err
    create = bench.calls("gcloud")[1]
    assert create[5:9] == [
        "run",
        "--node-count=2",
        "--node-prefix=run",
        "--accelerator-type=v5p-16",
    ]
    assert "--network=n" in create
    bench.wait(lambda: len(bench.trained()) == 4)
    processes = sorted(one[0] for one in bench.attempted())
    assert processes == [f"--process={n}" for n in range(4)]
    assert {verb for verb in verbs(bench) if "ssh" in verb} == {
        f"ssh run-{node} --worker={worker}" for node in range(2) for worker in range(2)
    }


def test_a_spot_slice_that_is_taken_away_is_asked_for_again(bench, words):
    # At the start; two looks while it runs; the second time it has gone.
    bench.write("states", "NONE ACTIVE SUSPENDED SUSPENDED ACTIVE ACTIVE")
    more = ["--config.spot", "--config.delete_when_done"]
    assert bench.launch("run", *words, *more, *TRAIN) == 0, bench.err
    found = [verb for verb in verbs(bench) if "ssh" not in verb and verb != "describe"]
    assert found == ["create", "delete", "create", "delete"]
    assert "--spot" in bench.calls("gcloud")[1]
    assert "in state SUSPENDED: it is asked for again" in bench.err
    assert "run: 1 done" in bench.err
    assert len(bench.trained()) == 2


def test_a_slice_that_never_comes_ends_the_watch(bench, words):
    bench.write("states", "NONE ACTIVE FAILED")
    more = ["--config.spot", "--config.restarts_without_progress=2"]
    assert bench.launch("run", *words, *more, *TRAIN) == 1
    assert bench.err.count("FAILED: there is no such slice now") == 3
    assert "another zone" in bench.err


@pytest.mark.parametrize("state", ["FAILED", "SUSPENDED"])
def test_a_request_that_cannot_be_filled_ends_the_wait(bench, words, state):
    bench.write("states", f"NONE WAITING_FOR_RESOURCES {state}")
    assert bench.launch("run", *words, *TRAIN) == 1
    assert f"{state}: there is no such slice now" in bench.err
    assert verbs(bench) == ["describe", "create", "describe", "describe"]


def test_the_wait_has_a_limit(bench, words):
    bench.write("states", "NONE PROVISIONING")
    assert bench.launch("run", *words, "--config.wait_hours=0.0001", *TRAIN) == 1
    assert "still PROVISIONING after 0.0001 hours" in bench.err
    assert "takes the request back" in bench.err


def test_status_logs_stop_and_delete(bench, words):
    assert bench.launch("run", *words, "--config.topology=v5e-16", "--watch", *TRAIN) == 0
    assert bench.launch("run", "status") == 0
    assert bench.out.splitlines() == [
        "queued resource run: ACTIVE",
        *(f"run/{n}: done" for n in range(4)),
    ]
    assert bench.launch("run", "logs") == 0
    assert {line[:7] for line in bench.out.splitlines()} == {f"[run/{n}]" for n in range(4)}
    assert bench.launch("run", "logs", "--host=2") == 0
    assert {line[:7] for line in bench.out.splitlines()} == {"[run/2]"}
    assert bench.launch("run", "stop") == 0
    assert bench.out.count("nothing is running") == 4
    assert bench.launch("run", "delete") == 0
    assert bench.calls("gcloud")[-1] == [
        *"gcloud compute tpus queued-resources delete run --force".split(),
        *PLACE,
    ]


def test_the_cost_is_said_before(bench, words):
    more = ["--config.price_per_chip_hour=1.5", "--config.hours=10", "--config.topology=v5e-16"]
    assert bench.launch("run", *words, *more, "--dry_run", *TRAIN) == 0
    assert "cost: 16 chips x 1.50 = 24.00 an hour; 240.00 for 10 hours" in bench.err
    assert bench.launch("run", *words, "--dry_run", *TRAIN) == 0
    assert (
        "8 chips: the price is unknown; give yours with --config.price_per_chip_hour" in bench.err
    )
    assert not bench.calls()


def test_on_a_terminal_the_price_is_asked_for(bench, words, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = iter(["1.5", "no"])
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    assert bench.launch("run", *words, *TRAIN) == 1
    assert "8 chips x 1.50 = 12.00 an hour" in bench.err
    assert "not started: nothing was run" in bench.err
    assert not bench.calls()
    assert bench.launch("run", *words, "--yes", *TRAIN) == 0

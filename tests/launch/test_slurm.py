"""Slurm: the scripts of a job run with stand-ins for srun and scontrol."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

import pytest

from t5x_like.core.exit_status import FINAL

TRAIN = ["--", "train", "--model_dir=/shared/run"]
# Runs the task once for each process, as srun does.
SRUN = r"""#!/bin/bash
nodes=0; task=()
for word in "$@"; do case $word in --nodes=*) nodes=${word#*=} ;; esac; done
while [[ $1 == --* ]]; do shift; done
echo $$ >HERE/srun
for ((n = 0; n < nodes; n++)); do
  SLURM_PROCID=$n SLURM_NTASKS=$nodes "$@" &
done
worst=0
for job in $(jobs -p); do
  wait "$job"; s=$?
  while kill -0 "$job" 2>/dev/null; do wait "$job"; s=$?; done
  [ "$s" -gt "$worst" ] && worst=$s
done
exit "$worst"
"""
# A signal to a step reaches all of its processes.
SCANCEL = r"""#!/bin/bash
echo "$*" >>HERE/scancel
if [[ $* = *.0 ]]; then
  for task in $(pgrep -P "$(cat HERE/srun)"); do kill -TERM $(pgrep -P "$task") "$task"; done
fi
"""
SCONTROL = r"""#!/bin/bash
here=HERE
echo "$*" >>"$here/scontrol"
if [ "$1" = show ]; then printf 'n0\nn1\n'; fi
"""


@pytest.fixture
def words(bench) -> list[str]:
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("scancel", SCANCEL)):
        (bench.root / "bin" / name).write_text(text.replace("HERE", str(bench.root)))
        (bench.root / "bin" / name).chmod(0o755)
    sleep = bench.root / "bin" / "sleep"
    sleep.write_text("#!/bin/sh\nexit 0\n")
    sleep.chmod(0o755)
    return [
        "--config=slurm",
        "--config.nodes=2",
        f"--config.package={bench.wheel}",
        f"--config.environment={bench.environment}",
        "--config.env=A='b $(c)'",
        "--config.secrets=HF_TOKEN",
    ]


@contextlib.contextmanager
def job(bench):
    """Starts the job's script as Slurm does: without the variables of the shell."""
    variables = {
        "PATH": os.environ["PATH"],
        "SLURM_JOB_ID": "12345",
        "SLURM_JOB_NODELIST": "n[0-1]",
    }
    script = str(bench.launches / "run/bundle/job.sh")
    with subprocess.Popen(["bash", script], env=variables) as running:
        yield running


def run_job(bench) -> int:
    """The exit status of the job's script."""
    with job(bench) as running:
        return running.wait(60)


def queued_again(bench) -> int:
    file = bench.root / "scontrol"
    return file.read_text().count("requeue 12345") if file.exists() else 0


def test_sbatch_is_given_the_job(bench, words):
    more = [
        "--config.partition=gpu",
        "--config.account=lab",
        "--config.time=1-00:00:00",
        "--config.options=--constraint=a100 --comment='two words'",
    ]
    assert bench.launch("run", *words, *more, *TRAIN) == 0, bench.err
    (call,) = bench.calls("sbatch")
    folder = bench.launches / "run"
    assert call == [
        *"sbatch --job-name=t5x_like-run --nodes=2 --ntasks-per-node=1 --partition=gpu".split(),
        *"--account=lab --time=1-00:00:00 --gpus-per-node=8 --constraint=a100".split(),
        "--comment=two words",
        f"--output={folder}/log",
        *"--open-mode=append --requeue --signal=B:USR1@300 --export=NIL".split(),
        f"{folder}/bundle/job.sh",
    ]
    assert (folder / "bundle/secrets.sh").stat().st_mode & 0o777 == 0o600


def test_a_job_runs_a_process_on_each_node(bench, words, hostile, secret):
    assert bench.launch("run", *words, *TRAIN, *hostile) == 0, bench.err
    assert run_job(bench) == 0
    assert len(bench.trained()) == 2
    for arguments, variables, _ in bench.trained():
        number = int(arguments[4].removeprefix("--process_id="))
        assert arguments == [
            "train",
            "--distributed",
            "--coordinator_address=n0:24690",
            "--num_processes=2",
            f"--process_id={number}",
            "--model_dir=/shared/run",
            *hostile,
        ]
        assert variables == {"A": "b $(c)", "HF_TOKEN": secret}
    assert queued_again(bench) == 0
    assert not list(bench.root.rglob("leaked"))
    assert bench.launch("run", "status") == 0
    assert bench.out.endswith("done\n")


@pytest.mark.parametrize("status", [1, 137, 3])
def test_a_failure_queues_the_job_again(bench, words, status):
    assert bench.launch("run", *words, *TRAIN) == 0, bench.err
    bench.write("statuses", str(status))
    run_job(bench)
    assert queued_again(bench) == 1
    bench.write("statuses", "0")
    assert run_job(bench) == 0
    assert queued_again(bench) == 1


@pytest.mark.parametrize("status", [n for n in FINAL if n])
def test_some_ends_are_final(bench, words, status):
    assert bench.launch("run", *words, *TRAIN) == 0, bench.err
    bench.write("statuses", str(status))
    assert run_job(bench) == status
    assert queued_again(bench) == 0
    assert bench.launch("run", "status") == 0
    assert f"ended with exit status {status}" in bench.out


@pytest.mark.parametrize("stopped", [False, True])
def test_before_its_time_limit_a_job_saves_and_is_queued_again(bench, words, stopped):
    assert bench.launch("run", *words, *TRAIN) == 0, bench.err
    bench.write("statuses", "run")
    with job(bench) as running:
        bench.wait(lambda: len(bench.trained()) == 2)
        if stopped:
            assert bench.launch("run", "stop") == 0
            told = (bench.root / "scancel").read_text().splitlines()
            assert [line.split()[-1] for line in told] == ["--state=PENDING", "--signal=TERM"]
        running.send_signal(signal.SIGTERM if stopped else signal.SIGUSR1)
        running.wait(60)
    ends = bench.launches / "run/bundle/ends"
    assert [(ends / name).read_text() for name in "01"] == ["3\n", "3\n"]
    assert queued_again(bench) == (not stopped)


def test_a_queued_run_is_not_started_twice(bench, words):
    squeue = bench.root / "bin/squeue"
    squeue.write_text("#!/bin/sh\necho 77\n")
    assert bench.launch("run", *words, *TRAIN) == 1
    assert "job 77 of this launch is queued or running: t5x_like launch run stop" in bench.err
    assert not bench.calls("sbatch")


@pytest.mark.parametrize("container", ["apptainer", "pyxis"])
def test_a_container(bench, words, container):
    image = "docker://example.org/t5x_like@sha256:" + "a" * 64
    without = [word for word in words if "environment" not in word]
    more = [f"--config.image={image}", f"--config.container={container}"]
    assert bench.launch("run", *without, *more, *TRAIN) == 0, bench.err
    folder = bench.launches / "run/bundle"
    assert image in (folder / ("task.sh" if container == "apptainer" else "job.sh")).read_text()
    for name in ("job.sh", "task.sh", "run.sh"):
        subprocess.run(["bash", "-n", str(folder / name)], check=True)


def test_logs_of_all_and_of_one(bench, words):
    assert bench.launch("run", *words, *TRAIN) == 0, bench.err
    (bench.launches / "run/log").write_text("0: a\n1: b\nqueued again\n")
    assert bench.launch("run", "logs") == 0
    assert bench.out == "0: a\n1: b\nqueued again\n"
    assert bench.launch("run", "logs", "--host=1") == 0
    assert bench.out == "1: b\n"
    assert bench.launch("run", "delete") == 0
    assert (bench.root / "scancel").read_text() == "--me --name=t5x_like-run\n"

"""Slurm: one process on each node of a job, which asks to be queued again until it is done."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t5x_like.core.exit_status import FINAL
from t5x_like.launching import hosts, shipping
from t5x_like.launching.commands import Action, Call, File, LaunchError, Note, Runner
from t5x_like.launching.job import Job
from t5x_like.launching.scripts import exports, run_script

RENTED = False
"""Whether the machines are paid for by the hour."""


def problems(config: Any) -> list[str]:
    """The errors in the configuration's fields, one line each."""
    errors = hosts.problems(config)
    if config.nodes < 1:
        errors.append(f"--config.nodes={config.nodes}: it must be at least 1")
    if config.gpus_per_node < 0:
        errors.append(f"--config.gpus_per_node={config.gpus_per_node}: it must not be negative")
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", config.time) and config.time:
        errors.append(f"--config.time={config.time!r}: write it as Slurm does, such as 1-00:00:00")
    if config.image and config.environment:
        errors.append("--config.image and --config.environment: choose one")
    if config.image and not re.search(r"@sha256:[0-9a-f]{64}$|\.(sif|sqsh)$", config.image):
        errors.append(
            f"--config.image={config.image!r}: give an image by its digest, NAME@sha256:..., or a "
            "file (.sif for Apptainer, .sqsh for Pyxis)"
        )
    if config.container not in ("apptainer", "pyxis"):
        errors.append(f"--config.container={config.container!r}: apptainer or pyxis")
    if "\n" in config.options:
        errors.append("--config.options holds a new line: give options of sbatch between blanks")
    return errors


def count(config: Any) -> int:
    """The number of GPUs that are paid for."""
    return int(config.nodes) * int(config.gpus_per_node)


def unit(config: Any) -> str:
    """The unit that is paid for."""
    return "GPU"


def start(job: Job, runner: Runner) -> Iterator[Action]:
    """Writes the scripts, makes the environment, and gives the job to Slurm."""
    config = job.config
    me = ("squeue", "--me", f"--name={_name(job)}", "--noheader", "--format=%i")
    if busy := runner.ask(Call(me)).text:
        raise LaunchError(
            f"job {busy} of this launch is queued or running: t5x_like launch {job.name} stop"
        )
    if config.image:
        yield Call(("rm", "-rf", str(job.bundle)))
        yield File(job.bundle / "run.sh", run_script(job, python="python"))
        for name, text in shipping.user_files(job.arguments).items():
            yield File(job.bundle / "files" / name, text)
    else:
        yield from hosts.bundle(job)
        yield Call(("bash", str(job.bundle / "host.sh"), "install"))
    yield File(job.bundle / "job.sh", job_script(job))
    yield File(job.bundle / "task.sh", task_script(job))
    if job.secrets:
        yield File(job.bundle / "secrets.sh", exports(job.secrets), secret=True)
    yield Call(("sbatch", *_options(job), str(job.bundle / "job.sh")))
    yield Note("Slurm queues the run again by itself; you can go")


def status(job: Job, runner: Runner) -> None:
    """Prints the job, and how its last attempt ended."""
    shown = "%.10i %.12P %.8T %.10M %.6D %R"
    runner.perform([Call(("squeue", "--me", f"--name={_name(job)}", f"--format={shown}"))])
    end = job.bundle / "end"
    if end.is_file():
        number = int(end.read_text())
        print("done" if not number else f"ended with exit status {number}")


def logs(job: Job, *, host: int | None, lines: int, follow: bool) -> Iterator[Action]:
    """The logs of all processes, or of one; before each line stands its number."""
    log = job.directory / "log"
    if not log.is_file():
        yield Note("there is no log yet: the job has not started")
        return
    words = ["tail", f"--lines={lines}", *["--follow"] * follow, str(log)]
    if host is None:
        yield Call(tuple(words))
    else:
        chosen = f"{shlex.join(words)} | grep --line-buffered -E '^ *{int(host)}: '"
        yield Call(("bash", "-c", chosen))


def stop(job: Job) -> Iterator[Action]:
    """Saves and stops; a job that waits in the queue is taken out of it."""
    yield Call(("touch", str(job.bundle / "stop")))
    me = ("--me", f"--name={_name(job)}")
    yield Call(("scancel", *me, "--state=PENDING"))
    yield Call(("scancel", *me, "--batch", "--signal=TERM"))


def delete(job: Job) -> Iterator[Action]:
    """Takes the job from Slurm at once."""
    yield Call(("scancel", "--me", f"--name={_name(job)}"))


def _name(job: Job) -> str:
    return f"t5x_like-{job.name}"


def _options(job: Job) -> list[str]:
    config = job.config
    settings = {
        "partition": config.partition,
        "account": config.account,
        "qos": config.qos,
        "time": config.time,
        "gpus-per-node": config.gpus_per_node,
        "cpus-per-task": config.cpus_per_task,
    }
    return [
        f"--job-name={_name(job)}",
        f"--nodes={config.nodes}",
        "--ntasks-per-node=1",
        *(f"--{name}={value}" for name, value in settings.items() if value),
        *shlex.split(config.options),
        f"--output={job.directory / 'log'}",
        "--open-mode=append",
        "--requeue",
        # Before the time limit the job's script is told, and has time to save.
        f"--signal=B:USR1@{config.stop_seconds}",
        # Nothing of the shell that starts it, such as tokens, goes to Slurm.
        "--export=NIL",
    ]


def job_script(job: Job) -> str:
    """The script of the job: starts a process on each node, and queues the job again."""
    config = job.config
    container = ["--container-image", config.image, "--container-mounts", f"{job.directory}"]
    more = container if config.image and config.container == "pyxis" else []
    return f"""\
#!/usr/bin/env bash
# The run {job.name}: queued again until it is done.
set -u
cd {shlex.quote(str(job.bundle))} || exit 1
export HOME={shlex.quote(str(Path.home()))}
export PATH="${{PATH:-/usr/local/bin:/usr/bin:/bin}}"
final=" {" ".join(map(str, FINAL))} "
nodes={config.nodes}
task=({shlex.join(more)} bash task.sh)
{_JOB}"""


_JOB = r"""
queue_again() {
  if [ -e stop ]; then exit 0; fi
  echo "queued again: $1"
  scontrol requeue "$SLURM_JOB_ID"
  exec sleep 60 # until Slurm ends this script
}

# The processes save this step and end. A signal to srun itself would have Slurm kill them.
leave() { scancel --signal=TERM "$SLURM_JOB_ID.0"; }

if [ -e stop ]; then exit 0; fi
rm -rf end ends
mkdir ends
coordinator=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --export=ALL --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --label \
  --kill-on-bad-exit=1 "${task[@]}" \
  "--coordinator_address=$coordinator:$((20000 + SLURM_JOB_ID % 5000 * 2))" &
step=$!
trap leave TERM USR1
wait "$step"
while kill -0 "$step" 2>/dev/null; do wait "$step"; done # a signal ends `wait` early
for status in $(cat ends/* 2>/dev/null | sort -nru); do
  if [[ $final == *" $status "* ]]; then echo "$status" >end; exit "$status"; fi
done
queue_again "exit statuses of the processes: $(cat ends/* 2>/dev/null | xargs)"
"""


def task_script(job: Job) -> str:
    """The script of a process; an orderly end is not a reason for Slurm to kill the others."""
    inside = ""
    if job.config.image and job.config.container == "apptainer":
        words = ["apptainer", "exec", "--nv", "--bind", str(job.directory), job.config.image]
        inside = f"{shlex.join(words)} "
    return f"""\
#!/usr/bin/env bash
set -u
trap : TERM # which all processes of the step get: this one waits for the other
{inside}bash run.sh "$SLURM_PROCID" "$@" \\
  "--num_processes=$SLURM_NTASKS" "--process_id=$SLURM_PROCID"
status=$?
echo "$status" >"ends/$SLURM_PROCID"
if [ "$status" = 3 ]; then exit 0; fi
exit "$status"
"""

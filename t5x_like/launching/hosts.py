"""Machines reached by ssh: what is sent to them, and how they are started, watched and stopped."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from t5x_like.launching import shipping
from t5x_like.launching.commands import (
    Action,
    Call,
    File,
    LaunchError,
    Note,
    Runner,
    Together,
)
from t5x_like.launching.job import Job
from t5x_like.launching.scripts import exports, host_script, run_script

FOLDER = "t5x_like_launches"
"""The folder of the user's home on a host that holds what was sent there."""


@dataclasses.dataclass(frozen=True)
class Host:
    """One process's machine.

    Attributes:
      name: as people know it.
      shell: the words that run a command of the shell there.
      process: the number of its process.
      arguments: more arguments of `t5x_like train` on this host.
    """

    name: str
    shell: Callable[[str], tuple[str, ...]]
    process: int
    arguments: tuple[str, ...] = ()


def problems(config: Any) -> list[str]:
    """The errors in the fields that all engines with hosts share, one line each."""
    errors = shipping.package_problems(config.package)
    if config.environment and not config.environment.startswith("/"):
        errors.append("--config.environment: give a path from the root, the same on all hosts")
    if config.stop_seconds < 1:
        errors.append(f"--config.stop_seconds={config.stop_seconds}: it must be positive")
    return errors


def bundle(job: Job) -> Iterator[Action]:
    """Writes what goes to the hosts."""
    wheel = shipping.wheel_name(job.config.package)
    environment = job.config.environment
    python = shlex.quote(f"{environment}/bin/python") if environment else '"$here/venv/bin/python"'
    yield Call(("rm", "-rf", str(job.bundle)))
    yield from shipping.make_wheel(job)
    yield File(job.bundle / "run.sh", run_script(job, python=python))
    yield File(job.bundle / "host.sh", host_script(job, wheel=wheel))
    yield File(job.bundle / "constraints.txt", shipping.constraints())
    for name, text in shipping.user_files(job.arguments).items():
        yield File(job.bundle / "files" / name, text)


def start(job: Job, hosts: Sequence[Host]) -> Iterator[Action]:
    """Sends the bundle and the secrets, installs, and starts the run on all hosts."""
    archive = job.directory / "bundle.tar.gz"
    yield Call(("tar", "-czf", str(archive), "-C", str(job.bundle), "."))
    unpack = (
        'if [ -f {0}/host.sh ] && [ "$(bash {0}/host.sh status)" = running ]; then '
        "echo 'a run is under way: stop it first' >&2; exit 1; fi; "
        "umask 077; mkdir -p {0} && rm -f {0}/secrets.sh && tar -xzf - -C {0}"
    )
    yield Together(
        tuple(_call(job, host, unpack.format(_folder(job, host)), stdin=archive) for host in hosts)
    )
    yield _together(job, hosts, "install")
    if job.secrets:
        keep = "umask 077; cat >{}/secrets.sh"
        yield Together(
            tuple(
                dataclasses.replace(
                    _call(job, host, keep.format(_folder(job, host))),
                    stdin=exports(job.secrets),
                    secret=True,
                )
                for host in hosts
            )
        )
    yield start_alone(job, hosts)


def start_alone(job: Job, hosts: Sequence[Host]) -> Together:
    """Starts what was sent and installed before."""
    return Together(
        tuple(
            _verb(job, host, shlex.join(["start", str(host.process), *host.arguments]))
            for host in hosts
        )
    )


def states(job: Job, hosts: Sequence[Host], runner: Runner) -> list[str]:
    """The state of each host's process: running, done, failed N, stopped, lost or unreachable."""
    answers = runner.ask_all([_verb(job, host, "status") for host in hosts])
    return [
        answer.text.splitlines()[-1] if not answer.status and answer.text else "unreachable"
        for answer in answers
    ]


def logs(job: Job, hosts: Sequence[Host], *, lines: int, follow: bool) -> Together:
    """The last lines of all hosts' logs."""
    return _together(job, hosts, f"log {lines}{' follow' if follow else ''}")


def stop(job: Job, hosts: Sequence[Host]) -> Together:
    """Asks the run to save and stop, on all hosts at once, and waits for it."""
    return _together(job, hosts, "stop")


def remove(job: Job, hosts: Sequence[Host]) -> Together:
    """Removes what was sent; a run that is under way is stopped first."""
    script = "if [ -f {0}/host.sh ]; then bash {0}/host.sh stop; fi && rm -rf {0}"
    return Together(tuple(_call(job, host, script.format(_folder(job, host))) for host in hosts))


def watch(
    job: Job, hosts: Sequence[Host], runner: Runner, *, before: Callable[[], bool] = lambda: True
) -> int:
    """Waits for the end of a run, and starts it again where a host has lost it.

    Args:
      job: the run.
      hosts: its hosts.
      runner: what performs the actions.
      before: called before each look; False if the hosts were started anew.

    Returns:
      0 if the run is done, 3 if it was stopped.

    Raises:
      LaunchError: the run failed, and is not started again.
    """
    last_summary = ""
    while True:
        if before():
            now = states(job, hosts, runner)
            summary = ", ".join(f"{now.count(state)} {state}" for state in sorted(set(now)))
            if summary != last_summary:
                runner.perform([Note(f"{job.name}: {summary}")])
                last_summary = summary
            if all(state == "done" for state in now):
                return 0
            if failed := [n for n, state in enumerate(now) if state.startswith("failed")]:
                runner.perform([stop(job, hosts)])
                names = ", ".join(f"{hosts[n].name} ({now[n]})" for n in failed)
                raise LaunchError(
                    f"the run ended on {names} and is not started again; see: t5x_like launch "
                    f"{job.name} logs"
                )
            if all(state in ("stopped", "done") for state in now):
                return 3
            if lost := [hosts[n] for n, state in enumerate(now) if state == "lost"]:
                runner.perform([start_alone(job, lost)])
        time.sleep(job.config.poll_seconds)


def _folder(job: Job, host: Host) -> str:
    # Each process has its own: hosts may share the user's home.
    return f"{FOLDER}/{job.name}/{host.process}"


def _call(job: Job, host: Host, script: str, **fields: Any) -> Call:
    return Call(host.shell(script), host=host.name, **fields)


def _verb(job: Job, host: Host, words: str) -> Call:
    return _call(job, host, f"bash {_folder(job, host)}/host.sh {words}")


def _together(job: Job, hosts: Sequence[Host], words: str) -> Together:
    return Together(tuple(_verb(job, host, words) for host in hosts))

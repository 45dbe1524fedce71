"""Plain hosts over ssh: a loop on each host starts the run again until it is done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from t5x_like.launching import hosts
from t5x_like.launching.commands import Action, Note, Runner
from t5x_like.launching.job import Job

RENTED = False
"""Whether the machines are paid for by the hour."""


def problems(config: Any) -> list[str]:
    """The errors in the configuration's fields, one line each."""
    errors = hosts.problems(config)
    names = _names(config)
    if not names:
        errors.append(
            "--config.hosts is missing: name them as ssh does, --config.hosts=node1,node2"
        )
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_][\w.@-]*", name, re.A):
            errors.append(
                f"--config.hosts: {name!r} is not a name of a host; put options of ssh into "
                "~/.ssh/config"
            )
    if len(set(names)) < len(names):
        errors.append("--config.hosts names a host twice: it runs one process")
    if not 0 < config.port < 65535:
        errors.append(f"--config.port={config.port}: it must lie between 1 and 65534")
    return errors


def count(config: Any) -> int:
    """The number of GPUs that are paid for."""
    return len(_names(config)) * int(config.gpus_per_host)


def unit(config: Any) -> str:
    """The unit that is paid for."""
    return "GPU"


def start(job: Job, runner: Runner) -> Iterator[Action]:
    """Sends, installs and starts on all hosts."""
    yield from hosts.bundle(job)
    yield from hosts.start(job, _hosts(job))
    yield Note("the hosts start the run again by themselves; you can go")


def watch(job: Job, runner: Runner) -> int:
    """Waits for the end; a host that was rebooted starts the run again."""
    return hosts.watch(job, _hosts(job), runner)


def status(job: Job, runner: Runner) -> None:
    """Prints a line for each host."""
    states = hosts.states(job, _hosts(job), runner)
    for host, state in zip(_hosts(job), states, strict=True):
        print(f"{host.name}: {state}")


def logs(job: Job, *, host: int | None, lines: int, follow: bool) -> Iterator[Action]:
    """The logs of all hosts, or of one."""
    chosen = [each_host for each_host in _hosts(job) if host in (None, each_host.process)]
    yield hosts.logs(job, chosen, lines=lines, follow=follow)


def stop(job: Job) -> Iterator[Action]:
    """Saves and stops."""
    yield hosts.stop(job, _hosts(job))


def delete(job: Job) -> Iterator[Action]:
    """Stops, and removes what was sent."""
    yield hosts.remove(job, _hosts(job))


def _names(config: Any) -> list[str]:
    return [name.strip() for name in config.hosts.split(",") if name.strip()]


def _hosts(job: Job) -> list[hosts.Host]:
    config, names = job.config, _names(job.config)
    address = config.coordinator or names[0].rpartition("@")[2]

    def shell(name: str) -> Any:
        # A host that is silent for 3 minutes counts as unreachable.
        quiet = ("-o", "BatchMode=yes", "-o", "ServerAliveInterval=60", "-o", "ConnectTimeout=30")
        return lambda script: ("ssh", *quiet, name, script)

    return [
        hosts.Host(
            name=name,
            shell=shell(name),
            process=number,
            arguments=(
                f"--coordinator_address={address}:{config.port}",
                f"--num_processes={len(names)}",
                f"--process_id={number}",
            ),
        )
        for number, name in enumerate(names)
    ]

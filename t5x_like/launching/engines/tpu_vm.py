"""Cloud TPU VMs: queued resources, which are asked for again when they are taken away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from t5x_like.launching import hosts, slices
from t5x_like.launching.commands import (
    Action,
    Call,
    LaunchError,
    Note,
    Runner,
    Wait,
    WaitedTooLongError,
)
from t5x_like.launching.job import Job, field_problem

_GONE = frozenset({"FAILED", "SUSPENDED"})
_LEAVING = frozenset({"DELETING", "SUSPENDING"})

RENTED = True
"""Whether the machines are paid for by the hour."""


def problems(config: Any) -> list[str]:
    """The errors in the configuration's fields, one line each."""
    needed = {"project": "projects list", "zone": "compute tpus locations list"}
    errors = [
        f"--config.{field} is missing; see yours with: gcloud {listing}"
        for field, listing in needed.items()
        if not config[field]
    ]
    for field in needed:
        if config[field] and not re.fullmatch(r"[a-z][-a-z0-9.:]*", config[field]):
            errors.append(f"--config.{field}={config[field]!r}: no such name is possible")
    errors += hosts.problems(config)
    errors += field_problem("topology", lambda: slices.parse(config.topology))
    if config.slices < 1:
        errors.append(f"--config.slices={config.slices}: it must be at least 1")
    if config.spot and config.reserved:
        errors.append("--config.spot and --config.reserved: choose one")
    if config.wait_hours <= 0:
        errors.append(f"--config.wait_hours={config.wait_hours}: it must be positive")
    return errors


def count(config: Any) -> int:
    """The number of chips that are paid for."""
    return slices.parse(config.topology).chips * int(config.slices)


def unit(config: Any) -> str:
    """The unit that is paid for."""
    return "chip"


def start(job: Job, runner: Runner) -> Iterator[Action]:
    """Asks for the slices unless they are there, waits for them, installs and starts."""
    yield from hosts.bundle(job)
    state = _state(job, runner)
    if state in _GONE | _LEAVING:
        yield _delete(job)
        state = ""
    if not state:
        yield _create(job)
    if state != "ACTIVE":
        yield _active(job)
    yield from hosts.start(job, _hosts(job))
    yield Note(f"the slice costs money until: t5x_like launch {job.name} delete")


def watch(job: Job, runner: Runner) -> int:
    """Waits for the end; slices that were taken away are asked for again."""
    failures = 0

    def ensured() -> bool:
        nonlocal failures
        state = _state(job, runner)
        if state not in _GONE | _LEAVING | {""}:
            failures = 0
            return True
        what = f"in state {state}" if state else "not there"
        runner.perform([Note(f"{job.name}: the queued resource is {what}: it is asked for again")])
        try:
            runner.perform(start(job, runner))
        except WaitedTooLongError:
            raise
        except LaunchError as error:  # for example, taken away before the run had started
            failures += 1
            if failures > job.config.restarts_without_progress:
                raise
            runner.perform([Note(f"{job.name}: {error}")])
        return False

    status = hosts.watch(job, _hosts(job), runner, before=ensured)
    if not status and job.config.delete_when_done:
        runner.perform(delete(job))
    return status


def status(job: Job, runner: Runner) -> None:
    """Prints the state of the queued resource and a line for each host."""
    state = _state(job, runner)
    print(f"queued resource {job.name}: {state or 'not there'}")
    if state == "ACTIVE":
        for host, host_state in zip(
            _hosts(job), hosts.states(job, _hosts(job), runner), strict=True
        ):
            print(f"{host.name}: {host_state}")


def logs(job: Job, *, host: int | None, lines: int, follow: bool) -> Iterator[Action]:
    """The logs of all hosts, or of one."""
    chosen = [each_host for each_host in _hosts(job) if host in (None, each_host.process)]
    yield hosts.logs(job, chosen, lines=lines, follow=follow)


def stop(job: Job) -> Iterator[Action]:
    """Saves and stops; the slices stay, and cost money."""
    yield hosts.stop(job, _hosts(job))
    yield Note(f"the slice costs money until: t5x_like launch {job.name} delete")


def delete(job: Job) -> Iterator[Action]:
    """Gives the slices back, with their disks."""
    yield _delete(job)


def _gcloud(job: Job, group: str, verb: str, *words: str) -> tuple[str, ...]:
    place = (f"--project={job.config.project}", f"--zone={job.config.zone}")
    return ("gcloud", "compute", "tpus", group, verb, *words, *place, "--quiet")


def _create(job: Job) -> Call:
    config = job.config
    parsed = slices.parse(config.topology)
    if config.slices == 1:
        nodes = [f"--node-id={job.name}"]
    else:
        nodes = [f"--node-count={config.slices}", f"--node-prefix={job.name}"]
    settings = {
        "network": config.network,
        "subnetwork": config.subnetwork,
        "service-account": config.service_account,
    }
    return Call(
        _gcloud(
            job,
            "queued-resources",
            "create",
            job.name,
            *nodes,
            f"--accelerator-type={parsed.accelerator_type}",
            f"--runtime-version={config.runtime_version or parsed.runtime}",
            *["--spot"] * config.spot,
            *["--reserved"] * config.reserved,
            # A request that nobody waits for any more must not become a bill.
            f"--valid-until-duration={round(60 * config.wait_hours)}m",
            *(f"--{flag}={value}" for flag, value in settings.items() if value),
        )
    )


def _describe(job: Job) -> Call:
    shown = "--format=value(state.state)"
    return Call(_gcloud(job, "queued-resources", "describe", job.name, shown))


def _state(job: Job, runner: Runner) -> str:
    """The state of the queued resource; "" if there is none."""
    answer = runner.ask(_describe(job))
    if answer.status and not runner.dry and "NOT_FOUND" not in answer.text:
        runner.perform([Note(f"gcloud: {answer.text}")])
        return "unknown"
    return "" if answer.status else answer.text


def _active(job: Job) -> Wait:
    return Wait(
        _describe(job),
        until="ACTIVE",
        dead=_GONE | _LEAVING,
        seconds=job.config.poll_seconds,
        hours=job.config.wait_hours,
        advice=f"there is no such slice now. `t5x_like launch {job.name} delete` takes the request "
        f"back; then try another zone, --config.spot, or a longer --config.wait_hours",
    )


def _delete(job: Job) -> Call:
    return Call(_gcloud(job, "queued-resources", "delete", job.name, "--force"))


def _hosts(job: Job) -> list[hosts.Host]:
    config = job.config
    each = slices.parse(config.topology).hosts

    def shell(node: str, worker: int) -> Any:
        return lambda script: _gcloud(
            job, "tpu-vm", "ssh", node, f"--worker={worker}", f"--command={script}"
        )

    nodes = [job.name] if config.slices == 1 else [f"{job.name}-{n}" for n in range(config.slices)]
    return [
        hosts.Host(name=f"{node}/{worker}", shell=shell(node, worker), process=n * each + worker)
        for n, node in enumerate(nodes)
        for worker in range(each)
    ]

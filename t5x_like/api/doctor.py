"""Looks at a whole run before any work is done: what is wrong, where, and what to do.

All processes call `examine`; each has the findings of all.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from etils import epath

from t5x_like.core.buckets import staging
from t5x_like.data.corpora import matching_files
from t5x_like.data.corpora.text_files import TextFiles
from t5x_like.runs import pretraining, run_directory
from t5x_like.runs.checks import machines, preflight
from t5x_like.runs.checks.findings import Finding, of_all_hosts
from t5x_like.runs.memory.advice import memory_warnings
from t5x_like.runs.phases import RunPhase, run_phases
from t5x_like.runs.program import build_program
from t5x_like.runs.run import Run
from t5x_like.training.checkpointing.checkpoints import Checkpoints
from t5x_like.training.hosts import inventory
from t5x_like.training.hosts.multihost import ProcessError
from t5x_like.training.step import Program


class _MissingError(Exception):
    """Something that `train` makes at its start."""


def examine(run: Run, config: str) -> Iterator[Finding]:
    """The findings about a run, as soon as they are known.

    Args:
      run: the run.
      config: its resolved configuration as gin text.
    """
    hosts = inventory.all_hosts()
    names = [host.name for host in hosts]
    yield from machines.devices(hosts)
    yield from machines.clocks(hosts)
    if len(hosts) > 1:
        yield (agreement := _agreement(run, config))
        if agreement.state == "bad":
            return  # what follows must be the same everywhere
    try:
        phases = run_phases(run)
        programs = [build_program(phase.run) for phase in phases]
        for phase, program in zip(phases, programs, strict=True):
            phase.check_program(program)
    except ValueError as error:
        yield Finding("run", "bad", str(error))
        return
    yield _program(programs[0])
    for line in memory_warnings(run):
        yield Finding("memory of devices", "note", line)
    yield from of_all_hosts(_data(phases), names)
    if unwritable := of_all_hosts(_unwritable(run), names):
        yield from unwritable
        return
    model_dir = preflight.writable_directory(run.model_dir)
    yield from _directory(model_dir)
    yield from machines.room(model_dir, programs[0].abstract_state, hosts)


def _agreement(run: Run, config: str) -> Finding:
    try:
        pretraining.agree_on(run, config)
    except ProcessError as error:
        return Finding("hosts", "bad", str(error))
    return Finding("hosts", "good", "all have the same configuration and code")


def _program(program: Program) -> Finding:
    mesh = ", ".join(f"{axis}={n}" for axis, n in program.layout.mesh.shape.items() if n > 1)
    return Finding(
        "run", "good", f"{program.parameter_count:,} parameters on {mesh or 'one device'}"
    )


def _data(phases: Sequence[RunPhase]) -> Iterator[Finding]:
    """Whether the text is tokenised, whole and of this vocabulary; nothing is made."""
    for phase in phases:
        data = phase.run.data.with_lengths()
        try:
            tasks = data.open(once=_not_made, check=phase.check_vocabulary)
        except _MissingError as missing:
            yield Finding(
                "data",
                "note",
                f"{missing} is not there yet",
                "`train` makes it at its start, `t5x_like cache` does beforehand",
            )
            yield from _room_for_cache(phase.run)
            return
        except (ValueError, OSError) as error:
            yield Finding("data", "bad", str(error))
            return
        for task in tasks:
            text = f"{task.name}: {task.tokens():,} tokens, whole, of this vocabulary"
            yield Finding("data", "good", text)


def _not_made(name: str, path: Path, exists: Callable[[], bool], make: Callable[[], None]) -> None:
    del make
    if not exists():
        raise _MissingError(f"{name} ({staging.known_as(path)})")


def _room_for_cache(run: Run) -> Iterator[Finding]:
    """Whether the disk of the caches has as much room as the text takes, which is enough."""
    corpora = [task.corpus for task in run.data.named_tasks() or ()]
    files = [
        file
        for corpus in corpora
        if isinstance(corpus, TextFiles)
        for file in corpus.files("train")
    ]
    size = sum(map(matching_files.size, files))
    folder = run.data.root
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(parent).free
    if not size:
        return
    text = (
        f"the text has {size / 1e9:.3g} GB, {free / 1e9:.3g} GB are free for its cache in {parent}"
    )
    advice = "" if free > size else "Make room, or name another folder with --cache_dir"
    yield Finding("room", "note" if advice else "good", text, advice)


def _unwritable(run: Run) -> Iterator[Finding]:
    try:
        preflight.writable_directory(run.model_dir)
    except (ValueError, OSError) as error:
        yield Finding("directory", "bad", str(error))


def _directory(model_dir: epath.Path) -> Iterator[Finding]:
    try:
        with run_directory.sole_run(model_dir):
            steps = Checkpoints(run_directory.checkpoints(model_dir)).steps()
    except ProcessError as error:
        yield Finding("directory", "bad", str(error))
        return
    has = f"has step {steps[-1]}, which `train` resumes" if steps else "is new"
    yield Finding("directory", "good", f"{model_dir} can be written, and {has}")

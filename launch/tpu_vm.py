"""Trains on a Cloud TPU slice: creates it, installs this package on its hosts, starts the run.

usage: python launch/tpu_vm.py [STEP...] [--run] [--config.FIELD=VALUE...] [-- TRAIN_ARGUMENTS]

Prints the gcloud commands of the steps; with --run, runs them, and stops at the first that fails.

steps, in this order unless named otherwise (default: create install start):
  create   a TPU VM or queued resource, and wait for it
  install  Python, this package and jax[tpu] on every host
  start    `t5x_like train --distributed TRAIN_ARGUMENTS` on every host, in the background
  log      follow the log of the first host (stop watching with Ctrl-C; the run continues)
  stop     ask the run to save and stop, and wait until it has
  delete   the slice and everything on its disks; until then it costs money

example:
  python launch/tpu_vm.py --config.project=mine --config.zone=us-west4-a \\
    --config.package=dist/t5x_like-0.1.0-py3-none-any.whl \\
    -- --gin_file=runs/local.gin --gin.MODEL_DIR="'run1'"

--config=FILE takes the fields from a copy of launch/tpu_vm_config.py. The fields:
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from absl import app, flags
from ml_collections import ConfigDict, config_flags

CONFIG_FILE = Path(__file__).with_name("tpu_vm_config.py")
STEPS = ("create", "install", "start", "log", "stop", "delete")
RUNTIMES = {
    **dict.fromkeys(("v2", "v3", "v4"), "tpu-ubuntu2204-base"),
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
ENVIRONMENT = r"""\s*([A-Za-z_]\w*=('[^']*'|"[^"]*"|[^\s'"])*(\s+|$))*"""
# The first lines of a script that must not disturb a run on the same host.
IDLE = (
    "set -e",
    "mkdir -p t5x_like_run && cd t5x_like_run",
    'flock --nonblock lock true || { echo "$(hostname): a run is under way" >&2; exit 1; }',
)
DEAD = {"DELETING", "FAILED", "SUSPENDED", "SUSPENDING"}  # such a request never becomes ACTIVE


@dataclasses.dataclass(frozen=True)
class Command:
    """One gcloud call of a step; `until` repeats it until it prints that word."""

    step: str
    argv: tuple[str, ...]
    until: str = ""


def problems(config: ConfigDict, steps: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The errors of the configuration, one line each; empty if there are none."""
    needed = {"project": "projects list", "zone": "compute tpus locations list"}
    found = [
        f"--config.{field} is missing; see yours with: gcloud {listing}"
        for field, listing in needed.items()
        if not config[field]
    ]
    if unknown := [step for step in steps if step not in STEPS]:
        found.append(f"no such step: {', '.join(unknown)}; the steps are {', '.join(STEPS)}")
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", config.name):
        found.append(f"--config.name={config.name!r}: use lower-case letters, digits and hyphens")
    generation, _, size = config.accelerator.partition("-")
    known = bool(config.runtime_version) or (generation in RUNTIMES and size.isdigit())
    if "create" in steps and not known:
        found.append(
            f"--config.accelerator={config.accelerator!r}: one of {', '.join(RUNTIMES)}, a hyphen"
            " and a number; for another generation also give --config.runtime_version"
        )
    wheel = config.package.endswith(".whl") and Path(config.package).is_file()
    if "install" in steps and not wheel and not config.package.startswith("git+"):
        found.append(
            f"--config.package={config.package!r}: give git+https://...@revision, or a wheel that"
            " exists; make one with: python -m pip wheel --no-deps --wheel-dir dist ."
        )
    if "start" in steps and not arguments:
        found.append("what to train is missing: add  -- --gin_file=... --gin.NAME=value")
    if "start" in steps and not re.fullmatch(ENVIRONMENT, config.env):
        found.append(f"--config.env={config.env!r}: write it as A=1 B='two words'")
    return found


def gcloud(config: ConfigDict, group: str, verb: str, *arguments: str) -> tuple[str, ...]:
    """The words of `gcloud compute tpus GROUP VERB ARGUMENTS` in the project and zone."""
    place = (f"--project={config.project}", f"--zone={config.zone}")
    return ("gcloud", "compute", "tpus", group, verb, *arguments, *place)


def on_hosts(config: ConfigDict, script: Sequence[str], *, worker: str = "all") -> tuple[str, ...]:
    """The words that run a bash script on one host or on all of them."""
    command = "--command=" + "\n".join(script)
    return gcloud(config, "tpu-vm", "ssh", config.name, f"--worker={worker}", command)


def install(config: ConfigDict) -> list[tuple[str, ...]]:
    """Calls that install Python (by uv: that of the images is too old), then the package."""
    copy = []
    requirement = f"t5x_like[{config.extras}] @ {config.package}"
    if config.package.endswith(".whl"):
        copy = [gcloud(config, "tpu-vm", "scp", config.package, f"{config.name}:", "--worker=all")]
        requirement = f"../{Path(config.package).name}[{config.extras}]"
    script = [
        *IDLE,
        'export PATH="$HOME/.local/bin:$PATH"',
        "command -v uv >/dev/null || python3 -m pip install --user --quiet uv",
        f"uv venv --quiet --allow-existing --python {shlex.quote(config.python)} venv",
        "uv pip install --quiet --python venv --reinstall-package t5x_like"
        f" {shlex.quote(requirement)}",
        "venv/bin/t5x_like --version",
    ]
    return [*copy, on_hosts(config, script)]


def start(config: ConfigDict, arguments: Sequence[str]) -> list[tuple[str, ...]]:
    """The call that starts the run, which outlives the connection; a lock prevents a second run."""
    train = shlex.join(["venv/bin/t5x_like", "train", "--distributed", *arguments])
    script = [
        *IDLE,
        *([f"( {config.prepare} )"] if config.prepare else []),
        *(f"export {shlex.quote(pair)}" for pair in shlex.split(config.env)),
        f"setsid nohup flock --no-fork lock {train} >>log 2>&1 </dev/null &",
        "echo $! >pid",
        'echo "$(hostname): started"',
    ]
    return [on_hosts(config, script)]


def calls(step: str, config: ConfigDict, arguments: Sequence[str]) -> list[tuple[str, ...]]:
    """The gcloud calls of one step."""
    group = "queued-resources" if config.queued else "tpu-vm"
    match step:
        case "create":
            runtime = config.runtime_version or RUNTIMES[config.accelerator.partition("-")[0]]
            version = "--runtime-version" if config.queued else "--version"
            what = [f"--accelerator-type={config.accelerator}", f"{version}={runtime}"]
            node = [f"--node-id={config.name}"] * config.queued + ["--spot"] * config.spot
            return [gcloud(config, group, "create", config.name, *what, *node)]
        case "install":
            return install(config)
        case "start":
            return start(config, arguments)
        case "log":
            return [on_hosts(config, ["tail -n 100 -F t5x_like_run/log"], worker="0")]
        case "stop":
            told = 'flock --nonblock lock true || kill -TERM "$(cat pid)"'
            return [on_hosts(config, ["cd t5x_like_run", told, "flock --timeout 600 lock true"])]
    return [gcloud(config, group, "delete", config.name, *["--force"] * config.queued, "--quiet")]


def plan(config: ConfigDict, steps: Sequence[str], arguments: Sequence[str]) -> list[Command]:
    """The commands of the steps, in order."""
    commands = []
    for step in steps:
        commands += [Command(step, argv) for argv in calls(step, config, arguments)]
        if step == "create" and config.queued:
            asked = (config.name, "--format=value(state.state)")
            state = gcloud(config, "queued-resources", "describe", *asked)
            commands.append(Command(step, state, until="ACTIVE"))
    return commands


def render(commands: Sequence[Command], poll_seconds: float) -> str:
    """The commands as a shell script."""
    lines = []
    for command in commands:
        line = shlex.join(command.argv)
        if command.until:
            line = f'until [ "$({line})" = {command.until} ]; do sleep {poll_seconds}; done'
        lines.append(f"# {command.step}\n{line}")
    return "\n".join(lines)


def fail(message: str) -> NoReturn:
    """Leaves with status 1 and a message."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)


def call(command: Command) -> str:
    """Runs a command once; returns its output if the command waits for a word, else ""."""
    output = subprocess.PIPE if command.until else None
    done = subprocess.run(command.argv, check=False, stdout=output, text=True)
    state = (done.stdout or "").strip()
    if done.returncode or state in DEAD:
        fail(
            f"step {command.step!r} failed ({state or f'exit status {done.returncode}'}); nothing"
            " after it was run. The slice may exist already and cost money: see delete"
        )
    return state


def execute(commands: Sequence[Command], poll_seconds: float) -> None:
    """Runs the commands in order; leaves at the first that fails."""
    if not shutil.which("gcloud"):
        fail("gcloud is not on PATH: install the Google Cloud CLI, then run gcloud auth login")
    for command in commands:
        print(f"+ {shlex.join(command.argv)}", file=sys.stderr, flush=True)
        while (state := call(command)) != command.until:
            print(f"waiting for {command.until}: {state}", file=sys.stderr, flush=True)
            time.sleep(poll_seconds)


def main(argv: list[str]) -> None:
    """Prints or runs the plan of the command line."""
    cut = argv.index("--") if "--" in argv else len(argv)

    def parse(words: list[str]) -> list[str]:
        flags.DEFINE_bool("run", False, "run the commands instead of printing them")
        try:
            config_flags.DEFINE_config_file("config", str(CONFIG_FILE), "file of the fields")
            return app.parse_flags_with_usage(words)
        except (AttributeError, OSError, TypeError, ValueError) as error:
            fail(f"--config: {error}")

    def launch(words: list[str]) -> None:
        config, steps = flags.FLAGS.config, words[1:] or STEPS[:3]
        arguments = argv[cut + 1 :] or list(config.train)
        if found := problems(config, steps, arguments):
            fail("\n       ".join([*found, "nothing was run; --help explains"]))
        commands = plan(config, steps, arguments)
        if flags.FLAGS.run:
            return execute(commands, config.poll_seconds)
        print(render(commands, config.poll_seconds))
        print("# nothing was run: add --run to run these", file=sys.stderr)

    app.run(launch, argv=argv[:cut], flags_parser=parse)


if __name__ == "__main__":
    fields = [line for line in CONFIG_FILE.read_text().splitlines() if " # " in line]
    __doc__ = "\n".join([str(__doc__).rstrip(), *(f"  {line.strip()}" for line in fields)])
    try:
        main(sys.argv)
    except KeyboardInterrupt:
        sys.exit(130)

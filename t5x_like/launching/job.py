"""A job to launch: a command that trains, variables, secrets, and the code."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
"""Names that Compute Engine, Kubernetes and Slurm accept, with room for the numbers of hosts."""

_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PHRASE|CREDENTIAL|(^|_)(PASS|PAT|PWD|PW|AUTH)(_|\d*$)", re.I
)
"""Names of variables whose values are secrets."""
_CREDENTIALS = re.compile(r"://[^/@\s]*:[^/@\s]+@")
"""A user and a password in an address."""
STARTED = ("train", "finetune")
"""The commands that a launcher starts."""
_OURS = ("--distributed", "--coordinator_address", "--num_processes", "--process_id")


@dataclasses.dataclass(frozen=True)
class Job:
    """A run that is to be started somewhere.

    Attributes:
      name: its name, by which it is watched, stopped and deleted.
      launch: a text that differs between two starts by hand, which count their restarts anew.
      arguments: a command of `STARTED`, and its arguments.
      directory: the folder here that holds what was launched.
      config: the fields of the launcher's configuration.
      secrets: values of secret variables; empty when a job is only watched.
    """

    name: str
    launch: str
    arguments: tuple[str, ...]
    directory: Path
    config: Any
    secrets: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def bundle(self) -> Path:
        """The folder of what goes to all hosts, without secrets."""
        return self.directory / "bundle"

    @property
    def model_dir(self) -> str:
        """The directory of the run."""
        return option(self.arguments, "model_dir", "MODEL_DIR")

    @property
    def env(self) -> dict[str, str]:
        """The variables of the run that are not secrets."""
        return dict(pair.split("=", 1) for pair in shlex.split(self.config.env))


def options(arguments: Sequence[str], name: str) -> Iterator[str]:
    """All values of `--name VALUE` and `--name=VALUE`, in order."""
    words = iter(arguments)
    for word in words:
        if word == f"--{name}":
            yield next(words, "")
        elif word.startswith(f"--{name}="):
            yield word.partition("=")[2]


def option(arguments: Sequence[str], name: str, macro: str) -> str:
    """The value of a setting, by its flag or as `--gin.MACRO="'VALUE'"`; "" if it is not given."""
    values = [*options(arguments, name)]
    for text in options(arguments, f"gin.{macro}"):
        try:
            values.append(str(ast.literal_eval(text)))
        except (ValueError, SyntaxError):
            continue  # the command says what is wrong with it
    return values[-1] if values else ""


def secret_names(config: Any) -> list[str]:
    """The names of the secret variables."""
    return [name.strip() for name in config.secrets.split(",") if name.strip()]


def problems(name: str, arguments: Sequence[str], config: Any) -> list[str]:
    """The errors in a job that concern every launcher, one line each."""
    errors = []
    if not NAME.fullmatch(name):
        errors.append(
            f"the name {name!r}: use lower-case letters, digits and hyphens, at most 40, with a "
            "letter first"
        )
    errors += _argument_problems(arguments)
    errors += _env_problems(config.env)
    for secret in secret_names(config):
        if not re.fullmatch(r"[A-Za-z_]\w*", secret, re.A):
            errors.append("--config.secrets: it takes names of variables, such as WANDB_API_KEY")
        elif secret not in os.environ:
            errors.append(
                f"--config.secrets={secret}: there is no such variable here; export it first"
            )
    for field in ("price_per_chip_hour", "hours", "restarts_without_progress"):
        if config[field] < 0:
            errors.append(f"--config.{field}={config[field]}: it must not be negative")
    return errors


def _argument_problems(arguments: Sequence[str]) -> Iterator[str]:
    if not arguments:
        yield "what to run is missing: add  -- train --recipe NAME --model_dir DIR ..."
        return
    if arguments[0] not in STARTED:
        yield f"{arguments[0]!r} after -- : the launchers start  {'  or  '.join(STARTED)}  alone"
    if any("\0" in word for word in arguments):
        yield f"the arguments of {arguments[0]} hold a NUL character, which no program can be given"
    for word in arguments:
        if word.partition("=")[0] in _OURS:
            yield f"{word}: leave it out; the launcher adds it on every host"
        if match := _CREDENTIALS.search(word):
            shown = word.replace(match.group(), "://...@")
            yield (
                f"{shown}: it has a password in an address, and would be printed and stored; let "
                "the hosts find credentials as docs/buckets.md says"
            )
    where = option(arguments[1:], "model_dir", "MODEL_DIR")
    if not where:
        yield (
            f"--model_dir is missing after -- {arguments[0]}: name a bucket (gs://..., s3://...) "
            "or a network directory; a run goes on from there after a restart"
        )
    elif "://" not in where and not where.startswith("/"):
        yield f"--model_dir={where}: give a bucket or a path from the root, the same on all hosts"


def _env_problems(text: str) -> Iterator[str]:
    try:
        pairs = shlex.split(text)
    except ValueError:
        pairs = [""]
    names = [pair.partition("=")[0] for pair in pairs if "=" in pair]
    if len(names) < len(pairs) or not all(re.fullmatch(r"[A-Za-z_]\w*", n, re.A) for n in names):
        yield "--config.env: write it as A=1 B='two words'"
        return
    for name, pair in zip(names, pairs, strict=True):
        if _SECRET.search(name) or _CREDENTIALS.search(pair):
            yield (
                f"--config.env: {name} looks like a secret, and would be printed and stored; "
                f"export {name}=... here and give --config.secrets={name}"
            )


def field_problem(field: str, read: Callable[[], T]) -> list[str]:
    """The complaint of a function that reads a field of the configuration, if it has one."""
    try:
        read()
    except ValueError as error:
        return [f"--config.{field}: {error}"]
    return []

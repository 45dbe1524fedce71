"""The protocol of an engine: a module of `engines/` with these functions."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Protocol, cast

from t5x_like.core.spelling import nearest
from t5x_like.launching import engines
from t5x_like.launching.commands import Action, LaunchError, Runner
from t5x_like.launching.job import Job


class Engine(Protocol):
    """The functions of an engine.

    Attributes:
      RENTED: whether its machines are paid for by the hour, so that the price is asked for.
    """

    RENTED: bool

    def problems(self, config: Any) -> list[str]:
        """The errors in the configuration's fields, one line each."""

    def unit(self, config: Any) -> str:
        """The unit that is paid for: chip or GPU."""

    def count(self, config: Any) -> int:
        """The number of chips or GPUs that are paid for."""

    def start(self, job: Job, runner: Runner) -> Iterator[Action]:
        """Starts the run."""

    def status(self, job: Job, runner: Runner) -> None:
        """Prints the state of the run."""

    def logs(self, job: Job, *, host: int | None, lines: int, follow: bool) -> Iterator[Action]:
        """Prints the logs of all processes, or of one."""

    def stop(self, job: Job) -> Iterator[Action]:
        """Asks the run to save and stop."""

    def delete(self, job: Job) -> Iterator[Action]:
        """Ends the run, and gives back or removes what was made for it."""


class Watching(Engine, Protocol):
    """An engine that must be watched from here, as nothing else starts its runs again."""

    def watch(self, job: Job, runner: Runner) -> int:
        """Waits for the end of the run; returns its exit status."""


def names() -> list[str]:
    """The names of all engines."""
    return sorted(module_info.name for module_info in pkgutil.iter_modules(engines.__path__))


def load(name: str) -> Engine:
    """The engine of that name.

    Raises:
      LaunchError: there is none.
    """
    if name not in names():
        raise LaunchError(f"no launcher {name!r}" + nearest(name, names(), of="launchers"))
    return cast(Engine, importlib.import_module(f"t5x_like.launching.engines.{name}"))


def watcher(engine: Engine) -> Watching | None:
    """The engine, if its runs must be watched from here."""
    return cast(Watching, engine) if hasattr(engine, "watch") else None

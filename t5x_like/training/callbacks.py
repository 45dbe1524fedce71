"""Callbacks: objects that a run calls while it trains, such as experiment trackers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Status = Literal["finished", "interrupted", "preempted", "already_finished", "stopped_early"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How training ended, and after how many steps.

    Attributes:
      status: `interrupted` by Ctrl-C or because the caller takes no more steps, `preempted` by
        another signal or in another process; the other names say it themselves.
      step: the steps that were taken and saved.
    """

    status: Status
    step: int

    @property
    def left(self) -> bool:
        """Whether the run was asked to leave before its end: the same call goes on with it."""
        return self.status in ("interrupted", "preempted")


class Callback:
    """Methods that process 0 calls; a method that is not overridden does nothing.

    Values have the names of `metrics.jsonl`, without `train/` and `eval/`. An exception in a method
    ends the run, like any other error.
    """

    def start(self, run: Mapping[str, Any]) -> None:
        """Called once, before the first step.

        `run` has `model_dir`, `config` (gin text), `step` and `total_steps`.
        """

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Called every LOG_PERIOD steps with means and rates of the steps since the last call."""

    def evaluate(self, step: int, values: Mapping[str, float]) -> None:
        """Called every EVAL_PERIOD steps with held-out metrics, named `<task>/<metric>`."""

    def save(self, step: int, directory: str) -> None:
        """Called as soon as a checkpoint of `step` is being written into `directory`."""

    def end(self, outcome: Outcome | None) -> None:
        """Called once when a run that has started ends; None if an error ended it."""


class Callbacks(Callback):
    """Several callbacks as one."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self._callbacks = tuple(callbacks)

    def start(self, run: Mapping[str, Any]) -> None:
        for callback in self._callbacks:
            callback.start(run)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for callback in self._callbacks:
            callback.log(step, values)

    def evaluate(self, step: int, values: Mapping[str, float]) -> None:
        for callback in self._callbacks:
            callback.evaluate(step, values)

    def save(self, step: int, directory: str) -> None:
        for callback in self._callbacks:
            callback.save(step, directory)

    def end(self, outcome: Outcome | None) -> None:
        for callback in self._callbacks:
            callback.end(outcome)

"""What is told of a run while it trains: for trackers of experiments, and for code of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How training ended, and after how many steps in all."""

    status: Literal["finished", "preempted", "already_finished"]
    step: int


class Callback:
    """Is called by process 0; a method that is not overridden does nothing.

    Names of values are those of `metrics.jsonl`, without `train/` and `eval/`. What a method raises
    ends the run, as any error does.
    """

    def start(self, run: Mapping[str, Any]) -> None:
        """Once, before the first step: `model_dir`, `config` (gin text), `step`, `total_steps`."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Every LOG_PERIOD steps: means and rates of the steps since the time before."""

    def evaluate(self, step: int, values: Mapping[str, float]) -> None:
        """Every EVAL_PERIOD steps: held-out metrics, named `<task>/<metric>`."""

    def save(self, step: int, directory: str) -> None:
        """Once a checkpoint of `step` is under way into `directory`."""

    def end(self, outcome: Outcome | None) -> None:
        """Once, however a run that has started ends; None where an error ended it."""


class Callbacks(Callback):
    """Several as one."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self._callbacks = tuple(callbacks)

    def start(self, run: Mapping[str, Any]) -> None:
        for one in self._callbacks:
            one.start(run)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for one in self._callbacks:
            one.log(step, values)

    def evaluate(self, step: int, values: Mapping[str, float]) -> None:
        for one in self._callbacks:
            one.evaluate(step, values)

    def save(self, step: int, directory: str) -> None:
        for one in self._callbacks:
            one.save(step, directory)

    def end(self, outcome: Outcome | None) -> None:
        for one in self._callbacks:
            one.end(outcome)

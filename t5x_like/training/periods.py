"""How long a run and its phases are, and how often it evaluates, saves and logs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from t5x_like.training.completion import Completion
from t5x_like.training.step import Program

if TYPE_CHECKING:
    from t5x_like.core.protocols.model import Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Periods:
    """The steps of a run, and those between evaluations, checkpoints and log lines; 0 means never.

    An event with a period also happens after the last step. A checkpoint is always saved then.
    `early_stopping` is the number of evaluations without improvement after which a run ends.
    """

    train_steps: int
    eval_period: int = 1000
    checkpoint_period: int = 1000
    log_period: int = 20
    early_stopping: int = 0

    def due(self, name: Literal["eval", "checkpoint", "log"], step: int) -> bool:
        """Whether the event `name` happens after `step` steps."""
        period = getattr(self, f"{name}_period")
        return bool(period) and (step % period == 0 or step == self.train_steps)

    def saving(self, step: int) -> bool:
        """Whether a checkpoint is saved after `step` steps."""
        return step == self.train_steps or self.due("checkpoint", step)


class LoopPhase(Protocol):
    """Steps of a run with batches of one kind. The carry of a model ends with the phase.

    Attributes:
      program: the result of `step.build`; all phases have the same parameters.
      start: the steps of the run before it; it lasts until the next phase starts.
      complete: completes its batches; all phases have the same.
      evaluate: maps parameters to {"<task>/<metric>": value}; None if there is no held-out text.
    """

    @property
    def program(self) -> Program: ...

    @property
    def start(self) -> int: ...

    @property
    def complete(self) -> Completion: ...

    @property
    def evaluate(self) -> Callable[[Any], Mapping[str, float]] | None: ...

    def batches(self, start_step: int, /) -> Iterator[Batch]:
        """Global batches from a step on, which is counted from the start of the phase."""


def phase_of(step: int, phases: Sequence[LoopPhase]) -> LoopPhase:
    """The phase of the step that follows `step` steps."""
    return next(phase for phase in reversed(phases) if phase.start <= step)

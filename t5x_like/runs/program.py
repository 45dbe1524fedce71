"""The programs of a run: one for each phase, where they differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import optax

from t5x_like.config.object_text import Writer
from t5x_like.training import step
from t5x_like.training.optimization.schedule_numbers import schedule_numbers, without_numbers

if TYPE_CHECKING:
    from t5x_like.runs.run import Run


def build_program(run: Run, earlier: Sequence[Sequence[str]] = ()) -> step.Program:
    """The program of a run, made of its parts; `earlier` is that of `step.build`."""
    # A run that was made in Python and is opened again may have no optimizer.
    optimizer = run.optimizer or optax.identity()
    return step.build(
        run.make,
        optimizer,
        run.layout,
        run.options,
        earlier=earlier,
        model=run.abstract_model,
    )


class Programs:
    """The programs of runs, each of which is compiled once for all runs that it fits.

    Runs share a program if they have the same model, optimizer, mesh and options of a step. Their
    data, their seeds and the numbers of their schedules may differ (`schedule_numbers`).
    """

    def __init__(self) -> None:
        self._known: list[tuple[Any, step.Program]] = []

    def of(self, phases: Sequence[Run]) -> list[step.Program]:
        """The program of each phase of a run."""
        frozen = [tuple(run.options.frozen) for run in phases]
        # Where nothing is ever frozen or thawed, a program does not depend on the phases before.
        earlier = [frozen[:n] if len(set(frozen)) > 1 else [] for n in range(len(phases))]
        return [self._program(run, before) for run, before in zip(phases, earlier, strict=True)]

    def _program(self, run: Run, earlier: Sequence[Sequence[str]]) -> step.Program:
        key = (_parts(run), earlier)
        program = next((program for other, program in self._known if other == key), None)
        if program is None:
            program = build_program(run, earlier)
            self._known.append((key, program))
        return program.with_numbers(schedule_numbers(run.optimizer))


def _parts(run: Run) -> tuple[Any, ...]:
    """What decides the program of a run, to be compared with that of another."""
    options = {
        field.name: getattr(run.options, field.name)
        for field in dataclasses.fields(step.StepOptions)
    }
    functions = [_described(function) for function in (run.model, run.adapt)]
    return (*functions, without_numbers(run.optimizer), run.layout, options)


def _described(function: Any) -> Any:
    """Text that says what a function makes; where there is none, the function itself."""
    writer = Writer()
    try:
        return writer.text("", [writer.reference(function)])
    except (ValueError, TypeError):
        return function

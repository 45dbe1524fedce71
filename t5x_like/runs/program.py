"""The programs of a run: one for each phase, where they differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import optax

from t5x_like.training import step

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


def programs_of(phases: Sequence[Run]) -> list[step.Program]:
    """The program of each phase of a run; phases that differ in their data alone share theirs."""
    frozen = [tuple(run.options.frozen) for run in phases]
    # Where nothing is ever frozen or thawed, a program does not depend on the phases before.
    earlier = [frozen[:n] if len(set(frozen)) > 1 else [] for n in range(len(phases))]
    known: list[tuple[Any, step.Program]] = []
    for run, before in zip(phases, earlier, strict=True):
        options = dataclasses.asdict(run.options)
        key = (options, run.model, run.optimizer, before)
        program = next((program for other, program in known if other == key), None)
        known.append((key, program or build_program(run, before)))
    return [program for _, program in known]

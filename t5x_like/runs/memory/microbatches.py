"""The number of microbatches with which the activations of a step fit the devices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from t5x_like.core.devices.memory import ACTIVATIONS, usable_bytes
from t5x_like.runs.memory import rows
from t5x_like.runs.memory.estimate import estimate
from t5x_like.runs.program import build_program
from t5x_like.runs.run import Run

_TRACED_ROWS = 2
"""Rows of each device whose arrays are measured: one would look like any dimension of size 1."""


def with_microbatches(parts: Sequence[Run]) -> list[Run]:
    """Runs of one phase each whose number of microbatches is set; as they are if it was.

    One where devices have no memory of their own (CPUs). Elsewhere the fewest that fit, by the
    bytes that a row of each device takes. Phases that differ in their rows alone, as where batches
    grow, are traced once.

    Raises:
      ValueError: the parts of a run do not fit each other.
    """
    traced: list[tuple[Run, int]] = []
    return [
        _with(part, _microbatches(part, traced)) if part.options.microbatches is None else part
        for part in parts
    ]


def _microbatches(run: Run, traced: list[tuple[Run, int]]) -> int:
    """The fewest that fit; a run that is traced for it is added to those that were."""
    limit, shards = usable_bytes(run.layout.mesh), run.layout.batch_shards
    of_device, rest = divmod(run.options.batch_size, shards)
    if limit is None or rest or not of_device:  # `check_batch` says what is wrong
        return 1
    # Two microbatches, so that the sums of gradients count.
    options = dataclasses.replace(run.options, batch_size=2 * _TRACED_ROWS * shards, microbatches=2)
    few_rows = run.with_parts(options=options)
    fitting = next((rows for known, rows in traced if known == few_rows), None)
    if fitting is None:
        fitting = _fitting_rows(few_rows, limit)
        traced.append((few_rows, fitting))
    return next(
        n for n in range(1, of_device + 1) if not of_device % n and of_device // n <= fitting
    )


def _fitting_rows(run: Run, limit: float) -> int:
    """How many rows of each device fit at once, at least one; `run` has few of them."""
    estimated = estimate(run, build_program(run), rows.whole_row(run, rows.full_row(run)))
    room = min(ACTIVATIONS * limit, limit - estimated.besides_rows)
    return max(1, math.floor(room * _TRACED_ROWS / max(1.0, estimated.read)))


def _with(run: Run, microbatches: int) -> Run:
    options = dataclasses.replace(run.options, microbatches=microbatches)
    return run.with_parts(options=options)

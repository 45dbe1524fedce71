"""The number of microbatches with which the activations of a step fit the devices."""

from __future__ import annotations

import dataclasses
import math

from t5x_like.core.devices.memory import ACTIVATIONS, usable_bytes
from t5x_like.runs.memory import rows
from t5x_like.runs.memory.estimate import estimate
from t5x_like.runs.program import build_program
from t5x_like.runs.run import Run

_TRACED_ROWS = 2
"""Rows of each device whose arrays are measured: one would look like any dimension of size 1."""


def with_microbatches(run: Run) -> Run:
    """A run of one phase whose number of microbatches is set; as it is if it was.

    One where devices have no memory of their own (CPUs). Elsewhere the fewest that fit, by the
    bytes that a row of each device takes.

    Raises:
      ValueError: the parts of the run do not fit each other.
    """
    if run.options.microbatches is not None:
        return run
    limit = usable_bytes(run.layout.mesh)
    return _with(run, 1 if limit is None else _fitting(run, limit))


def _fitting(run: Run, limit: float) -> int:
    shards = run.layout.batch_shards
    of_device, rest = divmod(run.options.batch_size, shards)
    if rest or not of_device:  # `check_batch` says what is wrong
        return 1
    # Two microbatches, so that the sums of gradients count.
    options = dataclasses.replace(run.options, batch_size=2 * _TRACED_ROWS * shards, microbatches=2)
    few_rows = run.with_parts(options=options)
    program = build_program(few_rows)
    estimated = estimate(few_rows, program, rows.whole_row(run, rows.full_row(few_rows)))
    room = min(ACTIVATIONS * limit, limit - estimated.besides_rows)
    fitting = max(1, math.floor(room * _TRACED_ROWS / max(1.0, estimated.read)))
    return next(
        n for n in range(1, of_device + 1) if not of_device % n and of_device // n <= fitting
    )


def _with(run: Run, microbatches: int) -> Run:
    options = dataclasses.replace(run.options, microbatches=microbatches)
    return run.with_parts(options=options)

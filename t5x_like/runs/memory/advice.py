"""Warnings before a run is compiled that its steps will not fit the memory of its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from t5x_like.core.device_memory import usable_bytes
from t5x_like.runs import pretraining
from t5x_like.runs.memory import rows
from t5x_like.runs.memory.estimate import Estimate, estimate
from t5x_like.runs.memory.microbatches import with_microbatches

if TYPE_CHECKING:
    from t5x_like.runs.run import Run


def memory_warnings(run: Run) -> list[str]:
    """A line for each phase of a run whose estimate is more than a device has; says what helps.

    There are none where devices have no memory of their own (CPUs), and none where the run is not
    valid: training says why.
    """
    limit = usable_bytes(run.layout.mesh)
    if limit is None:
        return []
    try:
        parts = [with_microbatches(part) for _, part in run.in_phases()]
        found = [(part, _estimate(part)) for part in parts]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return [warning(part, one, limit) for part, one in found if one.total > limit]


def warning(run: Run, found: Estimate, limit: float) -> str:
    """The line for a run, with the settings of a phase, that needs more than `limit` bytes."""
    options = run.options
    needs = f"{found.total / 1e9:.3g} GB of the {limit / 1e9:.3g} GB of a device"
    rest = found.total - found.of_rows
    most = options.batch_size // run.layout.batch_shards
    now = options.microbatches or 1
    parts = [n for n in range(2, most + 1) if most % n == 0 and n > now]
    fitting = [n for n in parts if rest + found.of_rows * now / n <= limit]
    if fitting:
        advice = f"set MICROBATCHES = {fitting[0]}, or REMAT = 'nothing'"
    else:
        advice = "split the parameters too: --mesh fsdp=-1, or more devices"
    return (
        f"A step of {options.batch_size:,} rows probably does not fit: it needs about {needs}, "
        f"{found.of_rows / 1e9:.3g} GB of these for activations. If it fails, {advice}."
    )


def _estimate(run: Run) -> Estimate:
    program = pretraining.build_program(run)
    return estimate(run, program, rows.whole_row(run, rows.full_row(run)))

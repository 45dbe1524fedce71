"""Warnings before a run is compiled that its steps will not fit the memory of its devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flax import nnx

from t5x_like.core.devices.memory import usable_bytes
from t5x_like.core.partitioning import map_parameters
from t5x_like.runs.memory import rows
from t5x_like.runs.memory.estimate import Estimate, estimate
from t5x_like.runs.memory.microbatches import with_microbatches
from t5x_like.runs.program import build_program

if TYPE_CHECKING:
    from t5x_like.runs.run import Run

_LARGE = 2**20
"""Elements of a parameter whose copies on all devices matter."""


def memory_warnings(run: Run) -> list[str]:
    """A line for each phase of a run whose estimate is more than a device has; says what helps.

    There are none where devices have no memory of their own (CPUs), and none where the run is not
    valid: training says why.
    """
    limit = usable_bytes(run.layout.mesh)
    if limit is None:
        return []
    try:
        parts = with_microbatches([part for _, part in run.in_phases()])
        estimates = [(part, _estimate(part)) for part in parts]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return [
        warning(part, estimated, limit) for part, estimated in estimates if estimated.total > limit
    ]


def warning(run: Run, found: Estimate, limit: float) -> str:
    """The line for a run, with the settings of a phase, that needs more than `limit` bytes."""
    needs = f"{found.total / 1e9:.3g} GB of the {limit / 1e9:.3g} GB of a device"
    return (
        f"A step of {run.options.batch_size:,} rows probably does not fit: it needs about {needs}, "
        f"{found.activations / 1e9:.3g} GB of these for activations. If it fails, "
        f"{remedy(run, found, limit)}."
    )


def remedy(run: Run, found: Estimate, limit: float) -> str:
    """The remedy for a run that needs more than `limit` bytes, in the imperative."""
    if (dividing := _dividing(run)) is not None:
        return (
            f"set --mesh data=-1,fsdp={dividing}: large parameters do not divide into "
            f"{run.layout.mesh.shape['fsdp']} parts, and each device has them whole"
        )
    rest = found.total - found.activations
    most = run.options.batch_size // run.layout.batch_shards
    now = run.options.microbatches or 1
    parts = [n for n in range(2, most + 1) if most % n == 0 and n > now]
    fitting = [n for n in parts if rest + found.activations * now / n <= limit]
    if fitting:
        return f"set MICROBATCHES = {fitting[0]}, or REMAT = 'nothing'"
    if run.layout.num_replicas == 1:  # no device has the same parameters as another
        return "set REMAT = 'nothing', or take more devices"
    return "split the parameters too: --mesh fsdp=-1, or more devices"


def _dividing(run: Run) -> int | None:
    """The largest divisor of the axis `fsdp` that divides all large parameters; None if it does."""
    size = run.layout.mesh.shape.get("fsdp", 1)
    sizes: list[list[int]] = []

    def add(axes: Sequence[str | None], shape: Sequence[int]) -> None:
        names = zip(axes, shape[len(shape) - len(axes) :], strict=True)
        split = [axis_size for name, axis_size in names if "fsdp" in run.layout.mesh_axes(name)]
        if split and math.prod(shape) >= _LARGE:
            sizes.append(split)

    map_parameters(add, nnx.state(run.abstract_model, nnx.Param))
    dividing = next(
        n
        for n in range(size, 0, -1)
        if size % n == 0 and all(any(axis_size % n == 0 for axis_size in split) for split in sizes)
    )
    return None if dividing == size else dividing


def _estimate(run: Run) -> Estimate:
    program = build_program(run)
    return estimate(run, program, rows.whole_row(run, rows.full_row(run)))

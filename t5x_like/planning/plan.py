"""The plan of a run on TPUs that are absent: whether it fits, how long it takes, what it costs.

All figures come from the compiler and from published rates of the chips: they are modelled, not
measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from t5x_like.planning.compilation import Compiled, Request, compile_step
from t5x_like.planning.topologies import Topology, topology
from t5x_like.planning.traffic import Traffic
from t5x_like.planning.walk import Work, walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTime:
    """The modelled time of a step, in seconds.

    Attributes:
      compute: a walk over the program, kernels included, without collectives.
      cycles: {kind of instruction: seconds} of that.
      uncosted: the part of `compute` that is bytes at the memory's bandwidth.
      kernels: the part of `compute` that Pallas kernels take.
      ici: sending all bytes of the collectives within slices, if nothing else ran.
      dcn: sending all bytes of the collectives between slices, if nothing else ran.
    """

    compute: float
    cycles: Mapping[str, float]
    uncosted: float
    kernels: float
    ici: float
    dcn: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasePlan:
    """The plan of one phase of a run.

    Attributes:
      steps: steps of the phase.
      batch_size: rows of a step.
      lengths: tokens of each task feature.
      mesh: sizes of the mesh axes.
      parameter_count: parameters of the model.
      tokens: tokens of a step, in full rows.
      flops: operations of the model's matrix products in a step; None if it does not count them.
      fits: the compiler's verdict.
      hbm_needed: bytes on a device.
      hbm_available: bytes that the compiler has on a device, if the step does not fit.
      hbm_parts: bytes on a device by what they are for.
      traffic: {kind: collectives of a step}; None if the step does not fit.
      time: None if the step does not fit or its code was not generated.
      mfu: model FLOPs utilisation without collectives, of `time.compute`.
    """

    steps: int
    batch_size: int
    lengths: Mapping[str, int]
    mesh: Mapping[str, int]
    parameter_count: int
    tokens: int
    flops: float | None
    fits: bool
    hbm_needed: float
    hbm_available: float | None
    hbm_parts: Mapping[str, float]
    traffic: Mapping[str, Traffic] | None
    time: StepTime | None
    mfu: float | None

    @property
    def days(self) -> float | None:
        """Days of all its steps, without collectives; None if the time is unknown."""
        return None if self.time is None else self.steps * self.time.compute / 86400


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a run: one part for each phase; notes about its settings."""

    topology: Topology
    phases: Sequence[PhasePlan]
    notes: Sequence[str] = ()

    @property
    def fits(self) -> bool:
        """Whether all phases fit."""
        return all(phase.fits for phase in self.phases)

    @property
    def days(self) -> float | None:
        """Days of the run, without collectives; None if that of a phase is unknown."""
        days = [phase.days for phase in self.phases]
        return None if None in days else sum(day for day in days if day is not None)


def plan(
    files: Sequence[str],
    topology_name: str,
    *,
    slices: int = 1,
    bindings: Sequence[str] = (),
    folders: Sequence[str] = (),
    memory_only: bool = False,
) -> Plan:
    """Compiles each phase of a run for slices of TPUs. Nothing is read or written; no text is needed.

    Args:
      files: gin files, as `t5x_like train --gin_file` takes them.
      topology_name: the chips of a slice, such as `v5e:4x4` or `v5p-64`.
      slices: the number of slices.
      bindings: settings as `NAME=value`.
      folders: searched for gin files as well.
      memory_only: whether to stop once it is known whether the step fits, which is sooner.

    Raises:
      PlanError: the run is not valid, or the compiler fails.
      MissingExtraError: the compiler is not installed.
      ValueError: there is no such topology.
    """
    request = Request(
        files=files,
        bindings=bindings,
        folders=folders,
        topology=topology(topology_name, slices),
        memory_only=memory_only,
    )
    first = compile_step(request)
    others = range(1, first.known["phases"])
    compiled = [first, *(compile_step(dataclasses.replace(request, phase=n)) for n in others)]
    return Plan(
        topology=request.topology,
        phases=[_phase(one, request.topology) for one in compiled],
        notes=first.known["notes"],
    )


def _phase(compiled: Compiled, where: Topology) -> PhasePlan:
    known = compiled.known
    work = None
    if compiled.text is not None:
        work = walk(
            compiled.text,
            where.chip,
            devices_of_slice=where.chips_of_slice,
            slices=where.slices,
        )
    time = _time(work, where) if work is not None and compiled.final else None
    mfu = None
    if time is not None and known["flops"] is not None:
        mfu = known["flops"] / where.chips / where.chip.peak_flops / time.compute
    held = {name: float(size) for name, size in known["bytes"].items() if size}
    return PhasePlan(
        steps=known["steps"],
        batch_size=known["batch_size"],
        lengths=known["lengths"],
        mesh=known["mesh"],
        parameter_count=known["parameter_count"],
        tokens=known["tokens"],
        flops=known["flops"],
        fits=compiled.available is None,
        hbm_needed=compiled.needed,
        hbm_available=compiled.available,
        hbm_parts={**held, "temporaries": max(0.0, compiled.needed - sum(held.values()))},
        traffic=None if work is None else work.traffic,
        time=time,
        mfu=mfu,
    )


def _time(work: Work, where: Topology) -> StepTime:
    chip = where.chip
    uncosted = work.uncosted_bytes / chip.hbm_bandwidth
    moved = sum(size * calls for (_, size), calls in work.kernels.items())
    kernels = moved / chip.hbm_bandwidth
    return StepTime(
        compute=work.seconds(chip) + kernels,
        cycles={kind: cycles / chip.clock for kind, cycles in work.cycles.items()},
        uncosted=uncosted,
        kernels=kernels,
        ici=sum(one.ici_bytes for one in work.traffic.values()) / chip.ici_bandwidth,
        dcn=sum(one.dcn_bytes for one in work.traffic.values()) / chip.dcn_bandwidth,
    )

"""The plan of a run on TPUs that are absent: whether it fits, how long it takes, what it costs.

All figures come from the compiler and from published rates of the chips: they are modelled, not
measured.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from t5x_like.planning.compilation import Compiled, Request, compile_step
from t5x_like.planning.kernels import KernelTime, kernel_times
from t5x_like.planning.topologies import Topology, topology
from t5x_like.planning.traffic import Traffic
from t5x_like.planning.walk import Work, walk

_DAY = 86400


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTime:
    """The modelled time of a step, in seconds.

    Attributes:
      compute: a walk over the program, kernels included, without collectives.
      cycles: {kind of instruction: seconds} of that.
      uncosted: the part of `compute` that is bytes at the memory's bandwidth.
      kernels: the parts of `compute` that Pallas kernels take.
      ici: sending all bytes of the collectives within slices, if nothing else ran.
      dcn: sending all bytes of the collectives between slices, if nothing else ran.
      blocking: the part of `ici` and `dcn` of collectives that nothing can run beside, because the
        compiler has not made them asynchronous.
    """

    compute: float
    cycles: Mapping[str, float]
    uncosted: float
    kernels: Sequence[KernelTime]
    ici: float
    dcn: float
    blocking: float

    @property
    def network(self) -> float:
        """The time of all collectives, if nothing else ran."""
        return self.ici + self.dcn

    @property
    def overlap(self) -> float:
        """The share of the network's time that can pass beside computation; 1 without any."""
        return 1 - self.blocking / self.network if self.network else 1.0

    @property
    def least(self) -> float:
        """The time of the step if all asynchronous collectives run beside it."""
        return self.compute + self.blocking

    @property
    def most(self) -> float:
        """The time of the step if no collective runs beside it."""
        return self.compute + self.network


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasePlan:
    """The plan of one phase of a run.

    Attributes:
      steps: steps of the phase.
      batch_size: rows of a step.
      microbatches: parts that the rows are cut into.
      lengths: tokens of each task feature.
      mesh: sizes of the mesh axes.
      parameter_count: parameters of the model.
      tokens: tokens of a step, in full rows.
      flops: operations of the model's matrix products in a step; None if it does not count them.
      fits: the compiler's verdict.
      hbm_needed: bytes on a device.
      hbm_available: bytes that the compiler has on a device, if the step does not fit.
      hbm_parts: bytes on a device by what they are for; `temporaries` live within a step alone:
        what is stored for the backward pass, gathered parameters, gradients.
      hbm_estimated: bytes on a device by arithmetic alone (`estimate`).
      traffic: {kind: collectives of a step}; None if the step does not fit.
      time: None if the step does not fit or its code was not generated.
      peak_flops: what all chips could do in a second.
    """

    steps: int
    batch_size: int
    microbatches: int
    lengths: Mapping[str, int]
    mesh: Mapping[str, int]
    parameter_count: int
    tokens: int
    flops: float | None
    fits: bool
    hbm_needed: float
    hbm_available: float | None
    hbm_parts: Mapping[str, float]
    hbm_estimated: float
    traffic: Mapping[str, Traffic] | None
    time: StepTime | None
    peak_flops: float

    def mfu(self, seconds: float) -> float | None:
        """Model FLOPs utilisation in steps of that many seconds."""
        return None if self.flops is None else self.flops / seconds / self.peak_flops


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """The price of a chip, in any currency, its power, and the emissions; None where unknown."""

    price_per_chip_hour: float | None = None
    watts_per_chip: float | None = None
    kg_co2e_per_kwh: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a run: one part for each phase; notes about its settings, and what would help."""

    topology: Topology
    phases: Sequence[PhasePlan]
    notes: Sequence[str] = ()

    @property
    def fits(self) -> bool:
        """Whether all phases fit."""
        return all(phase.fits for phase in self.phases)

    def days(self) -> tuple[float, float] | None:
        """Days of the run: if all asynchronous collectives run beside the rest, and if none does.

        None if the time of a phase is unknown.
        """
        times = [(phase.steps, phase.time) for phase in self.phases]
        known = [(steps, time) for steps, time in times if time is not None]
        if len(known) < len(times):
            return None
        least = sum(steps * time.least for steps, time in known)
        return least / _DAY, sum(steps * time.most for steps, time in known) / _DAY

    def expenses(self, rates: Rates) -> dict[str, float]:
        """The highest costs of the run, by name, as far as the rates and the time are known."""
        if (days := self.days()) is None:
            return {}
        hours = 24 * days[1] * self.topology.chips
        costs = {"chip_hours": hours}
        if rates.price_per_chip_hour is not None:
            costs["cost"] = hours * rates.price_per_chip_hour
        if rates.watts_per_chip is not None:
            costs["kwh"] = hours * rates.watts_per_chip / 1000
            if rates.kg_co2e_per_kwh is not None:
                costs["kg_co2e"] = costs["kwh"] * rates.kg_co2e_per_kwh
        return costs


def plan(
    files: Sequence[str],
    topology_name: str,
    *,
    slices: int = 1,
    bindings: Sequence[str] = (),
    folders: Sequence[str] = (),
    memory_only: bool = False,
    hopeless: float | None = None,
) -> Plan:
    """Compiles each phase of a run for slices of TPUs. No text is read.

    Args:
      files: gin files, as `t5x_like train --gin_file` takes them.
      topology_name: the chips of a slice, such as `v5e:4x4` or `v5p-64`.
      slices: the number of slices.
      bindings: settings as `NAME=value`.
      folders: searched for gin files as well.
      memory_only: whether to stop once it is known whether the step fits, which is sooner.
      hopeless: where the estimate is as many times the memory of a chip, the compiler is not asked.

    Raises:
      PlanError: the run is not valid, or the compiler fails.
      MissingExtraError: the compiler is not installed.
      ValueError: there is no such topology.
    """
    chips = topology(topology_name, slices)
    request = Request(
        files=files,
        bindings=bindings,
        folders=folders,
        topology=chips,
        memory_only=memory_only,
        largest_estimate=None if hopeless is None else hopeless * chips.chip.hbm_bytes,
    )
    first = compile_step(request)
    others = range(1, first.known["phases"])
    compiled = [first, *(compile_step(dataclasses.replace(request, phase=n)) for n in others)]
    return Plan(
        topology=request.topology,
        phases=[_phase(step, request.topology) for step in compiled],
        notes=[
            *first.known["notes"],
            *(f"To make it fit, {step.known['remedy']}." for step in compiled if step.available),
        ],
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
    parts = {name: float(size) for name, size in known["bytes"].items() if size}
    parts["temporaries"] = max(0.0, compiled.needed - sum(parts.values()))
    return PhasePlan(
        steps=known["steps"],
        batch_size=known["batch_size"],
        microbatches=known["microbatches"],
        lengths=known["lengths"],
        mesh=known["mesh"],
        parameter_count=known["parameter_count"],
        tokens=known["tokens"],
        flops=known["flops"],
        fits=compiled.available is None,
        hbm_needed=compiled.needed,
        hbm_available=compiled.available,
        hbm_parts=parts,
        hbm_estimated=known["estimate"],
        traffic=None if work is None else work.traffic,
        time=time,
        peak_flops=where.chips * where.chip.peak_flops,
    )


def _time(work: Work, where: Topology) -> StepTime:
    chip = where.chip
    kernels = kernel_times(work.kernels, where)
    sent = functools.reduce(Traffic.__add__, work.traffic.values(), Traffic())
    ici, dcn = where.seconds_of(sent.ici_bytes, sent.dcn_bytes)
    return StepTime(
        compute=work.seconds(chip) + sum(kernel.seconds for kernel in kernels),
        cycles={kind: cycles / chip.clock for kind, cycles in work.cycles.items()},
        uncosted=work.uncosted_bytes / chip.hbm_bandwidth,
        kernels=kernels,
        ici=ici,
        dcn=dcn,
        blocking=sum(where.seconds_of(sent.blocking_ici_bytes, sent.blocking_dcn_bytes)),
    )

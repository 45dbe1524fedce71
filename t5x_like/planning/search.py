"""A search for the settings with which a run fits and is fastest: mesh, microbatches, remat, scan.

It takes many minutes, so each finding is a line on standard error at once.

Memory is cheap to learn and time is not. So for each mesh the first setting that fits is found,
from the one that computes least to the one that stores least; only the most promising of these are
compiled to the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from t5x_like.core import progress
from t5x_like.layers.stacks.remat import POLICIES
from t5x_like.planning.compilation import PlanError
from t5x_like.planning.plan import Plan
from t5x_like.planning.topologies import Topology

MESH = "partitioning.make_layout.mesh"
MICROBATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
_RECOMPUTED = {"all": 0.0, "products": 0.05, "attention": 0.12, "nothing": 0.33}
"""About the share of the model's FLOPs that each remat policy computes again. It decides only which
settings are compiled to the end."""
_USUAL_MFU = 0.5

Settings = Mapping[str, str]
"""{name of a gin setting: value as gin writes it}."""

Try = Callable[[Settings, bool], Plan]
"""A plan with some settings; if the second argument is true, of memory alone."""


@dataclasses.dataclass(frozen=True)
class Found:
    """Settings with which a run fits, and their plan."""

    settings: Settings
    plan: Plan

    @property
    def seconds(self) -> float:
        """The modelled time of all steps, or before it is known what decides about the order."""
        total = 0.0
        for phase in self.plan.phases:
            if phase.time is not None:
                total += phase.steps * phase.time.most
                continue
            traffic = (phase.traffic or {}).values()
            ici, dcn = self.plan.topology.seconds_of(
                sum(collective.ici_bytes for collective in traffic),
                sum(collective.dcn_bytes for collective in traffic),
            )
            again = _RECOMPUTED.get(self.settings.get("REMAT", "").strip("'"), 0.0)
            products = (phase.flops or 0.0) * (1 + again) / phase.peak_flops / _USUAL_MFU
            total += phase.steps * (products + ici + dcn)
        return total


def search(
    attempt: Try, topology: Topology, *, fixed: Sequence[str] = (), compiled: int = 3
) -> tuple[list[Found], list[str]]:
    """The settings that fit, the fastest first, and lines about those that cannot be used.

    Args:
      attempt: makes a plan.
      topology: the chips.
      fixed: settings that the user has made; they are kept as they are.
      compiled: how many of them are compiled to the end.
    """
    free = [name for name in (MESH, "MICROBATCHES", "REMAT") if name not in fixed]
    meshes = [f"{mesh}" for mesh in _meshes(topology)] if MESH in free else [""]
    fitting: list[Found] = []
    notes: list[str] = []
    for mesh in progress.bar(meshes, desc="meshes", unit="mesh"):
        try:
            tried = [*_first_that_fits(attempt, {MESH: mesh} if mesh else {}, free)]
        except PlanError as error:
            notes.append(f"mesh {mesh}: {error}")
            continue
        fitting += tried
        for candidate in tried:
            progress.line(f"fits: {_text(candidate.settings)}")
        if not tried:
            progress.line(f"does not fit: {mesh or 'what is set'}")
    promising = sorted(fitting, key=lambda fit: fit.seconds)[:compiled]
    done: list[Found] = []

    def compile_whole(settings: Settings) -> None:
        try:
            done.append(Found(settings, attempt(settings, False)))
            progress.line(f"compiled: {_text(settings)}")
        except PlanError as error:
            notes.append(f"{dict(settings)}: {error}")

    for candidate in progress.bar(promising, desc="compiling", unit="program"):
        compile_whole(candidate.settings)
    done.sort(key=lambda fit: fit.seconds)
    if done and "SCAN_UNROLL" not in fixed:
        compile_whole({**done[0].settings, "SCAN_UNROLL": "1"})
    fits = [fit for fit in done if fit.plan.fits]
    return sorted(fits, key=lambda fit: fit.seconds), notes


def _text(settings: Settings) -> str:
    return " ".join(f"{name.rpartition('.')[2]}={value}" for name, value in settings.items())


def _first_that_fits(attempt: Try, mesh: Settings, free: Sequence[str]) -> Iterator[Found]:
    """The settings of a mesh that fit and compute least; none if nothing fits."""
    parts = MICROBATCHES if "MICROBATCHES" in free else ("",)
    policies = POLICIES if "REMAT" in free else ("",)
    for number in parts:
        for remat in policies:
            settings = {
                **mesh,
                **({"MICROBATCHES": str(number)} if number else {}),
                **({"REMAT": repr(remat)} if remat else {}),
            }
            try:
                plan = attempt(settings, True)
            except PlanError:
                if number in ("", 1):
                    raise
                return  # the rows no longer split
            if plan.fits:
                yield Found(settings, plan)
                return


def _meshes(topology: Topology) -> Iterator[dict[str, int]]:
    """Meshes to try; `replica` runs between slices."""
    between = {"replica": topology.slices} if topology.slices > 1 else {}
    chips = topology.chips_of_slice
    yield between | {"data": -1}
    if chips == 1:
        return
    yield between | {"fsdp": -1}
    if chips >= 16:
        yield between | {"data": -1, "fsdp": 4}
    for tensor in (2, 4):
        if chips > tensor:
            yield between | {"fsdp": -1, "tensor": tensor}

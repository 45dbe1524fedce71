"""`t5x_like plan`: says whether a run fits on TPUs that are absent, how long it takes, its cost."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_like.cli.common import arguments
from t5x_like.cli.common.parsers import CommandParser

if TYPE_CHECKING:
    from t5x_like.planning.plan import PhasePlan, Plan, Rates, StepTime
    from t5x_like.planning.search import Found

_EPILOG = """\
examples:
  t5x_like plan bert_large --topology v5e:4x4
      memory, traffic and modelled time of a step on 16 chips, for each phase of the recipe
  t5x_like plan t5_1_1_xxl --topology v5p-256 --slices 2 --mesh replica=2,fsdp=-1 --memory_only
      whether it fits, in less time

libtpu compiles the step on this machine's CPUs, as `t5x_like train` would compile it on the chips.
No text is needed. docs/plan.md says what the figures mean.
"""
_HOPELESS = 1.5
"""A search does not ask the compiler where the estimate is as many times the memory of a chip."""
_RATES = {
    "price_per_chip_hour": ("PRICE", "price of a chip for an hour, for the cost of the run"),
    "watts_per_chip": ("W", "power of a chip with its share of the host, for energy"),
    "kg_co2e_per_kwh": ("KG", "emissions of the site's electricity, for those of the run"),
}


def main(argv: list[str]) -> int:
    """Prints the plan of a run; the status is 1 if it does not fit."""
    parser = _parser()
    args, bindings = arguments.parse(parser, argv)
    if args.kg_co2e_per_kwh is not None and args.watts_per_chip is None:
        parser.error("--kg_co2e_per_kwh needs --watts_per_chip")

    from t5x_like.config import gin_files
    from t5x_like.planning.plan import plan

    recipe = [str(gin_files.find_recipe(args.recipe))] if args.recipe else []
    gin_bindings = [*arguments.given_settings(args), *bindings]
    compiled = functools.partial(
        plan,
        [*recipe, *args.gin_file],
        args.topology,
        slices=args.slices,
        folders=args.gin_search_paths,
    )
    if args.search:
        return _search(compiled, gin_bindings, args)
    planned = compiled(bindings=gin_bindings, memory_only=args.memory_only)
    rates = _rates(args)
    print(json.dumps(_json(planned, rates), indent=1) if args.json else _text(planned, rates))
    return 0 if planned.fits else 1


def _search(
    compiled: Callable[..., Plan], gin_bindings: Sequence[str], args: argparse.Namespace
) -> int:
    """Prints the settings that fit, the fastest first; the status is 1 if there are none."""
    from t5x_like.planning.search import search
    from t5x_like.planning.topologies import topology

    def attempt(settings: Mapping[str, str], memory_only: bool) -> Plan:
        more = [f"{name}={value}" for name, value in settings.items()]
        return compiled(
            bindings=[*gin_bindings, *more],
            memory_only=memory_only,
            hopeless=_HOPELESS if memory_only else None,
        )

    fitting, notes = search(
        attempt,
        topology(args.topology, args.slices),
        fixed=[binding.partition("=")[0].strip() for binding in gin_bindings],
    )
    if args.json:
        rates = _rates(args)
        listed = [{"settings": dict(fit.settings), **_json(fit.plan, rates)} for fit in fitting]
        print(json.dumps(listed, indent=1))
    else:
        print("\n".join([*_best(fitting), *notes]) or "Nothing fits.")
    return 0 if fitting else 1


def _best(fitting: Sequence[Found]) -> Iterator[str]:
    """A table of the settings that fit."""
    from t5x_like.display.tables import aligned

    if not fitting:
        return
    rows = [("HBM", "step", "MFU", "settings")]
    for candidate in fitting:
        phase = max(candidate.plan.phases, key=lambda phase: phase.hbm_needed)
        time, mfu = phase.time, ""
        if time is not None and (value := phase.mfu(time.most)) is not None:
            mfu = f"{value:.1%}"
        flags = " ".join(_flag(name, value) for name, value in candidate.settings.items())
        step = "" if time is None else f"{_ms(time.least)} to {_ms(time.most)} ms"
        rows.append((_size(phase.hbm_needed), step, mfu, flags))
    yield aligned(rows, right={0, 1, 2})
    yield "Figures of the phase that needs most memory; MFU if no collective runs beside the rest."


def _flag(name: str, value: str) -> str:
    """A setting of a search as a flag of `train`."""
    if name.endswith("make_layout.mesh"):
        sizes = value.strip("{}").replace("'", "").replace(": ", "=").replace(", ", ",")
        return f"--mesh {sizes}"
    return f'--gin.{name}="{value}"'


def _parser() -> CommandParser:
    parser = CommandParser(
        "plan",
        description="Compiles the step of a run for TPUs that are absent: whether it fits, what "
        "takes memory, traffic, modelled time and cost.",
        epilog=_EPILOG,
    )
    arguments.add_gin(parser, default="runs/local.gin", recipe="recipe")
    group = parser.add_argument_group("hardware")
    group.add_argument(
        "--topology",
        required=True,
        metavar="T",
        help="the chips of a slice: v5e:4x4, v5e-16, v5p-64, v6e-256",
    )
    group.add_argument(
        "--slices",
        type=arguments.positive,
        default=1,
        metavar="N",
        help="slices that a slower network connects; the mesh axis replica runs between them "
        "(default: 1)",
    )
    group.add_argument(
        "--memory_only", action="store_true", help="stop once it is known whether the step fits"
    )
    group.add_argument(
        "--search",
        action="store_true",
        help="try meshes, microbatches and remat policies, except those that are set here, and "
        "print those that fit, the fastest first",
    )
    arguments.add_settings(parser)
    group = parser.add_argument_group("output")
    for name, (metavar, what) in _RATES.items():
        group.add_argument(f"--{name}", type=float, metavar=metavar, help=what)
    group.add_argument("--json", action="store_true", help="print JSON in place of a table")
    return parser


def _rates(args: argparse.Namespace) -> Rates:
    from t5x_like.planning.plan import Rates

    return Rates(**{name: getattr(args, name) for name in _RATES})


def _json(planned: Plan, rates: Rates) -> dict[str, Any]:
    """The plan as JSON values."""
    days = planned.days()
    return {
        "topology": planned.topology.name,
        "slices": planned.topology.slices,
        "chips": planned.topology.chips,
        "fits": planned.fits,
        "days": None if days is None else {"least": days[0], "most": days[1]},
        **planned.expenses(rates),
        "phases": [_phase_json(phase) for phase in planned.phases],
        "notes": list(planned.notes),
    }


def _phase_json(phase: PhasePlan) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if (time := phase.time) is not None:
        more = {
            "seconds": {"least": time.least, "most": time.most},
            "overlap": time.overlap,
            "mfu": {"most": phase.mfu(time.least), "least": phase.mfu(time.most)},
            "tokens_per_second": {
                "most": phase.tokens / time.least,
                "least": phase.tokens / time.most,
            },
        }
    return dataclasses.asdict(phase) | more


def _text(planned: Plan, rates: Rates) -> str:
    """The plan as people read it."""
    topology = planned.topology
    lines = [
        f"{topology}: {topology.chips} chips, each with {_size(topology.chip.hbm_bytes)} and "
        f"{topology.chip.peak_flops / 1e12:,.0f} TFLOP/s. Modelled, not measured."
    ]
    for number, phase in enumerate(planned.phases, 1):
        several = f"phase {number}: " if len(planned.phases) > 1 else ""
        lengths = ", ".join(f"{name} {n:,}" for name, n in phase.lengths.items())
        parts = f" in {phase.microbatches} microbatches" if phase.microbatches > 1 else ""
        lines += [
            "",
            f"{several}{phase.parameter_count:,} parameters, {phase.steps:,} steps of "
            f"{phase.batch_size:,} rows{parts} ({lengths}), mesh {_pairs(phase.mesh)}",
        ]
        lines += _aligned(_phase_rows(phase, planned))
    lines += ["", *_aligned(_run_rows(planned, rates)), *planned.notes]
    return "\n".join(lines).strip()


def _phase_rows(phase: PhasePlan, planned: Plan) -> Iterator[tuple[str, str]]:
    limit = phase.hbm_available or planned.topology.chip.hbm_bytes
    yield (
        "fits" if phase.fits else "does NOT fit",
        f"{_size(phase.hbm_needed)} of {_size(limit)} on each chip",
    )
    for name, size in phase.hbm_parts.items():
        yield f"  {name}", f"{_size(size)}"
    yield "  estimated without it", f"{_size(phase.hbm_estimated)}"
    for kind, collective in (phase.traffic or {}).items():
        between = f", {_size(collective.dcn_bytes)} between slices" if collective.dcn_bytes else ""
        yield (
            f"{kind}",
            f"{collective.count:,.0f} a step, arrays of {_size(collective.bytes)}; a chip sends "
            f"{_size(collective.ici_bytes)} in its slice{between}",
        )
    if phase.flops is not None:
        yield "model FLOPs", f"{phase.flops / 1e12:,.1f} T a step, in full rows"
    if phase.time is not None:
        yield from _time_rows(phase, phase.time)


def _time_rows(phase: PhasePlan, time: StepTime) -> Iterator[tuple[str, str]]:
    yield (
        "step",
        f"{_ms(time.least)} ms if collectives run beside it where they can, {_ms(time.most)} if "
        "none does",
    )
    for kind, seconds in time.cycles.items():
        yield f"  {kind}", f"{_ms(seconds)} ms"
    yield "  without an estimate", f"{_ms(time.uncosted)} ms, their bytes at the memory's bandwidth"
    for kernel in time.kernels:
        how = "its bundles, without stalls" if kernel.source == "bundles" else "its bytes and FLOPs"
        yield (
            f"  kernel {kernel.name}",
            f"{_ms(kernel.seconds)} ms in {kernel.calls:,.0f} calls, by {how}",
        )
    yield "  collectives in a slice", f"{_ms(time.ici)} ms"
    if time.dcn:
        yield "  between slices", f"{_ms(time.dcn)} ms"
    if time.network:
        yield "  of both can overlap", f"{time.overlap:.0%}: the rest is part of both figures"
    if (mfu := phase.mfu(time.least)) is not None:
        yield "MFU", f"{mfu:.1%} to {phase.mfu(time.most):.1%}"
    yield (
        "tokens",
        f"{phase.tokens / time.least:,.0f} to {phase.tokens / time.most:,.0f} a second",
    )


def _run_rows(planned: Plan, rates: Rates) -> Iterator[tuple[str, str]]:
    """Rows about the whole run."""
    if (days := planned.days()) is None:
        return
    yield "run", f"{days[0]:.3g} to {days[1]:.3g} days"
    units = {"chip_hours": "chip hours", "cost": "cost", "kwh": "kWh", "kg_co2e": "kg CO2e"}
    for name, value in planned.expenses(rates).items():
        yield units[name], f"{value:,.3g} at most" if value < 100 else f"{value:,.0f} at most"


def _aligned(rows: Iterator[tuple[str, str]]) -> list[str]:
    from t5x_like.display.tables import aligned

    listed = list(rows)
    return aligned(listed, right=set()).splitlines() if listed else []


def _pairs(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{name}={size}" for name, size in sizes.items())


def _size(size: float) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e8 else f"{size / 1e6:,.2f} MB"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f}"

"""Plans of the published recipes on usual slices of TPUs; writes the tables of their page.

    python benchmarks/plans.py --resume
    python benchmarks/plans.py t5_1_1_base bert_large --topology v5e-16 --whole
    python benchmarks/plans.py --page

Each plan is what `t5x_like plan RECIPE --topology T` says. It is a line of
docs/results/plans.jsonl; of lines with the same recipe and topology the last counts. By default
the compiler stops once it has placed every array, which takes a minute; with `--whole` the
modelled time is known too; with `--estimate` the compiler is not asked. With `--resume`, only what
is missing is made. Nothing here is measured. Needs the extra `plan`.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import recorded
from tqdm import tqdm

from t5x_like.config import gin_files
from t5x_like.core.devices.tpus import CHIPS
from t5x_like.planning.compilation import InvalidRunError, PlanError
from t5x_like.planning.plan import PhasePlan, Plan, plan
from t5x_like.planning.topologies import topology

DOCS = Path(__file__).resolve().parent.parent / "docs"
LINES, PAGE = DOCS / "results" / "plans.jsonl", DOCS / "plan.md"
TOPOLOGIES = ("v5e-16", "v5e-256", "v5p-64", "v6e-256")
GROWING = tuple(CHIPS["v5e"].slice_name(chips) for chips in sorted(CHIPS["v5e"].slices))
"""Among these the smallest that fits is looked for."""
HOPELESS = 1.5
"""Where the estimate is as many times the memory of a chip, the compiler is not asked."""
BEGIN, END = "<!-- plans -->\n", "<!-- end of plans -->\n"


def main(argv: list[str] | None = None) -> int:
    """Makes the plans that are asked for; 1 if the compiler failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="default: all but -mini")
    parser.add_argument(
        "--topology", action="append", metavar="T", help=f"default: {', '.join(TOPOLOGIES)}"
    )
    parser.add_argument("--whole", action="store_true", help="the modelled time too")
    parser.add_argument("--estimate", action="store_true", help="by arithmetic alone, in seconds")
    parser.add_argument("--resume", action="store_true", help="skip plans that have a line")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    args = parser.parse_args(argv)
    complete = True
    if not args.page:
        recipes = args.recipes or published()
        stop_at = math.inf if args.whole else 0.0 if args.estimate else HOPELESS
        slices = args.topology or TOPOLOGIES
        complete = make(recipes, slices, stop_at=stop_at, resume=args.resume)
        if not args.topology:
            complete = grow(recipes, stop_at=stop_at) and complete
    write_page()
    return 0 if complete else 1


def published() -> list[str]:
    """The recipes at published sizes."""
    return [name for name in gin_files.published_recipes() if not name.endswith("-mini")]


def make(recipes: Sequence[str], slices: Sequence[str], *, stop_at: float, resume: bool) -> bool:
    """Makes plans and appends their lines; whether all could be made.

    Where the estimate is more than `stop_at` times the memory of a chip, the compiler is not asked;
    if that is infinite, it compiles to the end.
    """
    there = newest(recorded.read(LINES))
    pairs = [(recipe, name) for name in slices for recipe in recipes]
    if resume:
        pairs = [pair for pair in pairs if not done(there.get(pair), stop_at)]
    lines = [made(*pair, stop_at=stop_at) for pair in tqdm(pairs, unit="plan")]
    return all(lines)


def grow(recipes: Sequence[str], *, stop_at: float) -> bool:
    """Makes plans on larger and larger slices until one fits; those that are there stay."""
    complete = True
    for recipe in tqdm(recipes, unit="recipe"):
        for name in GROWING:
            found = newest(recorded.read(LINES)).get((recipe, name))
            if found is None or not done(found, stop_at):
                found = made(recipe, name, stop_at=stop_at)
            if found is None or found["fits"]:
                complete = complete and found is not None
                break
    return complete


def made(recipe: str, name: str, *, stop_at: float) -> Mapping[str, Any] | None:
    """Makes a plan and appends its line, which says why if the run is refused.

    None if the compiler fails.
    """
    started = time.monotonic()
    whole = math.isinf(stop_at)
    try:
        found = plan(
            [str(gin_files.find_recipe(recipe))],
            name,
            memory_only=not whole,
            hopeless=None if whole else stop_at,
        )
    except InvalidRunError as error:
        kept = {"recipe": recipe, "topology": name, "fits": False, "refused": str(error)}
    except PlanError as error:
        tqdm.write(f"{recipe} on {name}: {error}")
        return None
    else:
        kept = line(recipe, name, found) | {"took": round(time.monotonic() - started)}
    recorded.append(LINES, kept)
    return kept


def done(found: Mapping[str, Any] | None, stop_at: float) -> bool:
    """Whether a line says what is asked."""
    if found is None:
        return False
    if "refused" in found:
        return True
    if found["estimated"] and stop_at:
        return False
    return not math.isinf(stop_at) or not found["fits"] or "milliseconds" in found


def line(recipe: str, name: str, found: Plan) -> dict[str, Any]:
    """What is kept of a plan: of the phase that needs most memory, but days of all."""
    phase = max(found.phases, key=lambda one: one.hbm_needed)
    # Without the compiler, what is needed is what is estimated.
    estimated = phase.hbm_needed == phase.hbm_estimated
    fits = phase.hbm_needed <= found.topology.chip.hbm_bytes if estimated else found.fits
    kept: dict[str, Any] = {
        "recipe": recipe,
        "topology": name,
        "settings": recorded.settings([str(gin_files.find_recipe(recipe))]),
        "fits": fits,
        "estimated": estimated,
        "gigabytes": round(phase.hbm_needed / 1e9, 2),
        "microbatches": phase.microbatches,
        "mesh": dict(phase.mesh),
        "parameters": phase.parameter_count,
        "rows": phase.batch_size,
    }
    if (days := found.days()) is not None and phase.time is not None:
        kept |= {
            "milliseconds": round(1e3 * phase.time.most, 1),
            "days": round(days[1], 2),
            "mfu": _mfu(phase),
        }
    return kept


def _mfu(phase: PhasePlan) -> float | None:
    assert phase.time is not None, "the step was compiled to the end"
    value = phase.mfu(phase.time.most)
    return None if value is None else round(value, 3)


def newest(lines: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """{(recipe, topology): its newest line}."""
    return {(one["recipe"], one["topology"]): one for one in lines}


def tables(lines: Sequence[Mapping[str, Any]]) -> str:
    """A row for each recipe with its memory on each slice, and a table of the modelled times."""
    found = newest(lines)
    names = [name for name in published() if _planned(found, name)]
    head = ["recipe", "rows", *TOPOLOGIES, "smallest v5e"]
    rows = [
        [
            name,
            f"{_planned(found, name)[0]['rows']:,}",
            *(_memory(found.get((name, where))) for where in TOPOLOGIES),
            _smallest(found, name),
        ]
        for name in names
    ]
    timed = [one for one in found.values() if "milliseconds" in one]
    times = [
        [
            one["recipe"],
            one["topology"],
            f"{one['milliseconds']:,.1f}",
            "" if one["mfu"] is None else f"{one['mfu']:.1%}",
            f"{one['days']:.3g}",
        ]
        for one in timed
    ]
    if not times:
        return _table(head, rows)
    title = "\n### Modelled time\n\nIf no collective runs beside the rest:\n\n"
    timed_head = ["recipe", "slice", "step, ms", "MFU", "days"]
    return _table(head, rows) + title + _table(timed_head, times)


def _planned(
    found: Mapping[tuple[str, str], Mapping[str, Any]], recipe: str
) -> list[Mapping[str, Any]]:
    return [one for (name, _), one in found.items() if name == recipe and "refused" not in one]


def _memory(one: Mapping[str, Any] | None) -> str:
    """Gigabytes on a chip, with the microbatches; bold if they are too many."""
    if one is None:
        return ""
    if "refused" in one:
        return "-"
    size = f"{'~' * one['estimated']}{one['gigabytes']:.1f}" + (
        f" ({one['microbatches']})" if one["microbatches"] > 1 else ""
    )
    return size if one["fits"] else f"**{size}**"


def _smallest(found: Mapping[tuple[str, str], Mapping[str, Any]], recipe: str) -> str:
    """The first slice that fits, if all smaller ones are known not to."""
    for name in GROWING:
        one = found.get((recipe, name))
        if one is None:
            return ""
        if one["fits"]:
            return f"{'~' * one['estimated']}{name}"
    return "none"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["-", *["-:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(one)} |\n" for one in lines)


def write_page() -> None:
    """Puts the tables of all lines between the marks of the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    text = f"{before}{BEGIN}\n{tables(recorded.read(LINES))}\n{END}{after}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    # Slices that do not exist are an error before the first plan.
    [topology(name) for name in TOPOLOGIES]
    sys.exit(main())

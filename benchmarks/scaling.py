"""Fixed work a chip on more and more chips: modelled time, traffic and memory of a step.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --models t5_1_1_xl --rows 8 --resume
    python benchmarks/scaling.py --page

Compiles the step of a recipe for slices of 16, 64 and 256 chips of v5e and for four slices of 256,
with as many rows for each chip. Every program is a line of docs/results/scaling.jsonl, of which the
last of each program counts; the table in
docs/performance.md and the picture beside the lines are made of them. Nothing here is measured.
Needs the extra `plan`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import recorded
from tqdm import tqdm

from t5x_like.config import gin_files
from t5x_like.planning.plan import plan

DOCS = Path(__file__).resolve().parent.parent / "docs"
LINES, PICTURE = DOCS / "results" / "scaling.jsonl", DOCS / "results" / "scaling.png"
PAGE = DOCS / "performance.md"
SLICES = ((16, 1), (64, 1), (256, 1), (256, 4))
"""Chips of a slice, and slices."""
MESHES = {"t5_1_1_xl": "fsdp"}
"""The axis within a slice, where it is not what a run chooses by itself."""
BEGIN, END = "<!-- scaling -->\n", "<!-- end of scaling -->\n"


def main(argv: list[str] | None = None) -> int:
    """Compiles what is asked for and writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["t5_1_1_base"], metavar="RECIPE")
    parser.add_argument("--rows", type=int, default=16, help="rows for each chip (default: 16)")
    parser.add_argument("--resume", action="store_true", help="skip programs that have a line")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    args = parser.parse_args(argv)
    if not args.page:
        there = {_key(one) for one in recorded.read(LINES)} if args.resume else set()
        wanted = [(name, args.rows, *slices) for name in args.models for slices in SLICES]
        for one in tqdm([one for one in wanted if one not in there], unit="program"):
            recorded.append(LINES, compiled(*one))
    lines = recorded.read(LINES)
    write_page(lines)
    if lines:
        plot(newest(lines))
    return 0


def newest(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The last line of each program."""
    return [*{_key(one): one for one in lines}.values()]


def _key(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["recipe"], one["rows_a_chip"], one["chips_of_slice"], one["slices"]


def compiled(recipe: str, rows: int, chips: int, slices: int) -> dict[str, Any]:
    """The line of one program."""
    bindings = [f"BATCH_SIZE={rows * chips * slices}"]
    if (axis := MESHES.get(recipe)) is not None:
        bindings.append(f"partitioning.make_layout.mesh={ {axis: -1} }")
    recipes = [str(gin_files.find_recipe(recipe))]
    found = plan(recipes, f"v5e-{chips}", slices=slices, bindings=bindings)
    (phase,) = found.phases
    assert phase.time is not None, "a step with so few rows fits"
    return {
        "recipe": recipe,
        "rows_a_chip": rows,
        "chips_of_slice": chips,
        "slices": slices,
        "mesh": dict(phase.mesh),
        "gigabytes": round(phase.hbm_needed / 1e9, 3),
        "compute_ms": round(1e3 * phase.time.compute, 2),
        "ici_ms": round(1e3 * phase.time.ici, 2),
        "dcn_ms": round(1e3 * phase.time.dcn, 2),
        "traffic": {
            kind: {"ici": round(one.ici_bytes / 1e9, 3), "dcn": round(one.dcn_bytes / 1e9, 3)}
            for kind, one in (phase.traffic or {}).items()
        },
        "overlap": round(phase.time.overlap, 3),
        "mfu_most": phase.mfu(phase.time.least),
        "mfu_least": phase.mfu(phase.time.most),
    }


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """A row for each program, and their picture; bytes are what a chip sends in a step."""
    if not lines:
        return "No program has been compiled with this version yet.\n"
    head = ["recipe", "chips", "mesh", "HBM, GB", "compute, ms", "within slices, ms"]
    head += ["between slices, ms", "sent, GB", "MFU"]
    rows = [
        [
            one["recipe"],
            f"{one['slices']} x {one['chips_of_slice']}",
            ", ".join(f"{axis}={size}" for axis, size in one["mesh"].items()),
            f"{one['gigabytes']:.2f}",
            f"{one['compute_ms']:.1f}",
            f"{one['ici_ms']:.1f}",
            f"{one['dcn_ms']:.1f}",
            ", ".join(
                f"{kind} {sent['ici'] + sent['dcn']:.2f}" for kind, sent in one["traffic"].items()
            ),
            f"{one['mfu_least']:.1%} to {one['mfu_most']:.1%}",
        ]
        for one in newest(lines)
    ]
    body = [head, ["-"] * 3 + ["-:"] * 4 + ["-", "-:"], *rows]
    picture = "\n![Modelled time of a step on more and more chips](results/scaling.png)\n"
    return "".join(f"| {' | '.join(row)} |\n" for row in body) + picture


def write_page(lines: Sequence[Mapping[str, Any]]) -> None:
    """Puts the table of all lines between the marks of the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(lines)}\n{END}{after}", encoding="utf-8")


def plot(lines: Sequence[Mapping[str, Any]]) -> None:
    """Bars of each program's time: compute, then the network within and between slices."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [f"{one['recipe']}\n{one['slices']} x {one['chips_of_slice']}" for one in lines]
    figure, axes = pyplot.subplots(figsize=(1.2 + 1.1 * len(lines), 4))
    below = [0.0] * len(lines)
    for part, label in (
        ("compute_ms", "compute"),
        ("ici_ms", "within slices, if not beside it"),
        ("dcn_ms", "between slices, if not beside it"),
    ):
        heights = [one[part] for one in lines]
        axes.bar(names, heights, bottom=below, label=label)
        below = [a + b for a, b in zip(below, heights, strict=True)]
    axes.set_ylabel("modelled ms of a step")
    axes.legend()
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=100)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())

"""Steps of published recipes on 16 chips of TPU v5e, modelled: the table of docs/performance.md.

    python benchmarks/tpu_steps.py
    python benchmarks/tpu_steps.py --resume
    python benchmarks/tpu_steps.py "T5 1.1 base, 256 rows" "BERT large, 128 tokens"
    python benchmarks/tpu_steps.py --page

Compiles each as `t5x_like train --recipe` would on a slice v5e:4x4, with nothing set but the rows.
Every program is a line of docs/results/tpu_steps.jsonl; of lines with one name the last counts.
Nothing here is measured. Needs the extra `plan`.
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
LINES, PAGE = DOCS / "results" / "tpu_steps.jsonl", DOCS / "performance.md"
SLICE = "v5e:4x4"
PROGRAMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "T5 1.1 small, 128 rows": ("t5_1_1_small", ("BATCH_SIZE=128",)),
    "T5 1.1 base, 256 rows": ("t5_1_1_base", ("BATCH_SIZE=256",)),
    "T5 1.1 base, 2,048 rows": ("t5_1_1_base", ()),
    "T5 1.1 large, 256 rows": ("t5_1_1_large", ("BATCH_SIZE=256",)),
    "T5 1.1 large, 2,048 rows": ("t5_1_1_large", ()),
    "T5 1.1 XL, 128 rows": ("t5_1_1_xl", ("BATCH_SIZE=128",)),
    "BERT large, 128 tokens, 512 rows": (
        "bert_large",
        ("BATCH_SIZE=512", "PHASES=()", "TASK_FEATURE_LENGTHS={'inputs': 128}"),
    ),
    "BERT large, 512 tokens, 128 rows": ("bert_large", ("BATCH_SIZE=128", "PHASES=()")),
    "ELECTRA base, 256 rows": ("electra_base", ()),
    "BART base, 8,000 rows": ("bart_base", ()),
    "ALBERT base, 4,096 rows": ("albert_base", ()),
    "XLNet base, 256 rows": ("xlnet_base", ("BATCH_SIZE=256",)),
}
"""{name: (recipe, bindings)}."""
BEFORE: Mapping[str, str] = {
    "T5 1.1 small, 128 rows": "32.0 ms; T5X 31.2, unrolled 21.3",
    "T5 1.1 base, 256 rows": "171.8 ms, 10.76 GB; T5X 159.2, 4.43 GB",
    "T5 1.1 base, 2,048 rows": "out of memory; T5X too",
    "T5 1.1 large, 256 rows": "out of memory; T5X 524.6 ms, 13.06 GB",
    "T5 1.1 large, 2,048 rows": "out of memory; T5X too",
    "T5 1.1 XL, 128 rows": "3.2 GB; T5X 787 ms four-way, out of memory with FSDP",
    "BERT large, 128 tokens, 512 rows": "137.7 ms, 10.8 GB; plain JAX unrolled 81.4",
}
"""The same walk over the programs of an earlier version and of others (T5X at its last release)."""
BEGIN, END = "<!-- tpu steps -->\n", "<!-- end of tpu steps -->\n"


def main(argv: list[str] | None = None) -> int:
    """Compiles what is asked for and writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginnings of names in the table")
    parser.add_argument("--resume", action="store_true", help="skip programs that have a line")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    args = parser.parse_args(argv)
    if not args.page:
        there = _newest(recorded.read(LINES)).keys() if args.resume else set()
        wanted = [
            name
            for name in PROGRAMS
            if name not in there and (not args.names or name.startswith(tuple(args.names)))
        ]
        if not wanted and not args.resume:
            parser.error(f"no program {', '.join(args.names)}: there are {'; '.join(PROGRAMS)}")
        for name in tqdm(wanted, unit="program"):
            recorded.append(LINES, compiled(name))
    write_page(recorded.read(LINES))
    return 0


def compiled(name: str) -> dict[str, Any]:
    """The line of one program."""
    recipe, bindings = PROGRAMS[name]
    (phase,) = plan([str(gin_files.find_recipe(recipe))], SLICE, bindings=bindings).phases
    found: dict[str, Any] = {
        "name": name,
        "fits": phase.fits,
        "gigabytes": round(phase.hbm_needed / 1e9, 2),
        "estimated_gigabytes": round(phase.hbm_estimated / 1e9, 2),
        "microbatches": phase.microbatches,
    }
    if (time := phase.time) is not None:
        found |= {
            "walk_ms": round(1e3 * time.compute, 1),
            "network_ms": round(1e3 * time.network, 1),
            "overlap": round(time.overlap, 3),
            "least_ms": round(1e3 * time.least, 1),
            "most_ms": round(1e3 * time.most, 1),
            "products_ms": round(1e3 * time.cycles.get("matrix products", 0.0), 1),
            "kernels_ms": round(1e3 * sum(one.seconds for one in time.kernels), 1),
            "kernels_by": sorted({one.source for one in time.kernels}),
            "mfu": phase.mfu(time.least),
            "mfu_least": phase.mfu(time.most),
        }
    return found


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """A row for each program, by the newest of its lines; the one before is shown beside it.

    Lines without `overlap` are of an earlier version, which took every collective for one that
    runs beside the rest of the step.
    """
    newest = _newest(lines)
    earlier = {one["name"]: one for one in lines if "overlap" not in one and one["fits"]}
    head = ["program", "HBM, GB", "estimate, GB", "step, ms", "MFU", "products, ms"]
    head += ["attention kernels, ms", "network, ms", "of it beside the rest"]
    head += ["formerly: step, MFU", "an older version, and others"]
    rows = [
        [name, *_figures(newest.get(name)), _formerly(earlier.get(name)), BEFORE.get(name, "")]
        for name in PROGRAMS
        if name in newest or name in earlier
    ]
    body = [head, ["-", *["-:"] * 9, "-"], *rows]
    missing = [name for name in PROGRAMS if name not in newest]
    more = f"\nNot compiled with this version yet: {'; '.join(missing)}.\n" if missing else ""
    return "".join(f"| {' | '.join(row)} |\n" for row in body) + more


def _newest(lines: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The newest line of each program, without those of the earlier version."""
    return {one["name"]: one for one in lines if "overlap" in one or not one["fits"]}


def _figures(one: Mapping[str, Any] | None) -> list[str]:
    if one is None:
        return [""] * 8
    memory = [f"{one['gigabytes']:.2f}", f"{one['estimated_gigabytes']:.2f}"]
    if not one["fits"]:
        return [*memory, "does not fit", *[""] * 5]
    return [
        *memory,
        f"{one['least_ms']:,.1f} to {one['most_ms']:,.1f}",
        f"{one['mfu_least']:.1%} to {one['mfu']:.1%}",
        f"{one['products_ms']:,.1f}",
        f"{one['kernels_ms']:,.1f}",
        f"{one['network_ms']:,.1f}",
        f"{one['overlap']:.0%}",
    ]


def _formerly(one: Mapping[str, Any] | None) -> str:
    return "" if one is None else f"{one['walk_ms']:,.1f} ms, {one['mfu']:.1%}"


def write_page(lines: Sequence[Mapping[str, Any]]) -> None:
    """Puts the table of all lines between the marks of the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(lines)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

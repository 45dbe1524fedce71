"""Measures training steps of published recipes on the GPUs of this machine.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --models bert_large --rows 64 --gin.REMAT="'nothing'" --json gpu.jsonl
    python benchmarks/gpu.py --allow_cpu --models bert-mini,t5_1_1-mini,electra-mini --steps 3

Each phase of a recipe is a line: BERT has one of 128 and one of 512 tokens. The step is the one
that `t5x_like train --recipe NAME` compiles here, for a batch in one microbatch: --rows for each
GPU, random ids, no padding. Without --rows these are as many as a run puts into a microbatch, in
powers of two, and half as long as memory does not suffice. Reading data is not in the time.

`of matmul` is the share of the rate that this GPU reaches in bfloat16 products of square matrices,
measured right after the steps. What counts is the model's matrix products, forward and backward,
and nothing that is computed again. Published figures are their authors', on other GPUs and with
other software; they are not measured here.

The exit status is 0 if all lines reach 55 % of that rate, 1 if one does not, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gpu_steps
from gpu_steps import Case, OutOfMemoryError, in_own_process

from t5x_like.config import gin_files
from t5x_like.config.gin_config import ConfigError

MODELS = ("bert_large", "t5_1_1_large", "electra_base")
LEAST_SHARE = 0.55
CPU_ROWS = 8


class Published(NamedTuple):
    """A published figure: rows a second on one GPU, and the tokens of a row."""

    rows_per_second: float
    tokens: int
    conditions: str
    source: str

    @property
    def tokens_per_second(self) -> int:
        return round(self.rows_per_second * self.tokens)


# NVIDIA's pages for PyTorch and PaddlePaddle have 210 and 264 rows a second for BERT's 512 tokens,
# but these rows were grouped by length and cut: how many tokens they had is not known.
PUBLISHED = {
    ("bert_large", 1): Published(
        694,
        128,
        "A100 80GB, float16, batches of 256",
        "NVIDIA/DeepLearningExamples, PaddlePaddle/LanguageModeling/BERT/README.md",
    ),
    ("bert_large", 2): Published(
        96.52,
        512,
        "A100 80GB, float16, batches of 40",
        "NVIDIA/DeepLearningExamples, TensorFlow2/LanguageModeling/BERT/README.md",
    ),
    ("t5_1_1_large", 1): Published(
        75.8,
        512 + 128,
        "each of 64 A100 80GB, bfloat16, batches of 32",
        "NVIDIA/JAX-Toolbox, rosetta/rosetta/projects/t5x/README.md",
    ),
    ("electra_base", 1): Published(
        171,
        512,
        "A100 40GB, float16, batches of 24",
        "NVIDIA/DeepLearningExamples, TensorFlow2/LanguageModeling/ELECTRA/README.md",
    ),
}
"""By recipe and phase."""

HEADER = (
    f"{'model':16}{'tokens':>9}{'rows':>6}{'ms/step':>10}{'tokens/s':>11}{'TFLOP/s':>9}"
    f"{'of matmul':>11}{'peak GB':>9}{'published tokens/s':>20}"
)


def line(row: dict[str, Any]) -> str:
    """A row of the table; rates are those of one GPU."""
    peak = "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e9:.1f}"
    known = PUBLISHED.get((row["model"], row["phase"]))
    published = "none known" if known is None else f"{known.tokens_per_second:,}"
    return (
        f"{row['model']:16}{'+'.join(map(str, row['lengths'].values())):>9}{row['rows']:6}"
        f"{1e3 * row['median_seconds']:10.1f}{row['tokens_per_second']:11,.0f}"
        f"{row['flops_per_second'] / 1e12:9.3g}{row['share']:11.1%}{peak:>9}{published:>20}"
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; `settings` are those that begin with --gin., as `NAME=value`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models",
        default=",".join(MODELS),
        help="recipes, with commas between; `t5x_like recipes` lists them (default: %(default)s)",
    )
    parser.add_argument("--steps", type=int, default=20, help="timed steps (default: 20)")
    parser.add_argument("--rows", type=int, help="rows for each GPU (default: as many as fit)")
    parser.add_argument("--json", type=Path, help="append the rows to this file, a line each")
    parser.add_argument(
        "--allow_cpu",
        action="store_true",
        help="to try the script: without a GPU, do the same on the CPU, with small matrices and "
        f"{CPU_ROWS} rows by default; the figures say nothing about GPUs",
    )
    args, rest = parser.parse_known_args(argv)
    if unknown := [flag for flag in rest if not flag.startswith("--gin.") or "=" not in flag]:
        parser.error(f"no such arguments: {' '.join(unknown)}; settings are --gin.NAME=value")
    if args.steps < 1 or (args.rows is not None and args.rows < 1):
        parser.error("--steps and --rows must be at least 1")
    args.models = args.models.split(",")
    try:
        for name in args.models:
            gin_files.find_recipe(name)
    except ConfigError as error:
        parser.error(f"--models: {error}")
    args.settings = tuple(flag.removeprefix("--gin.") for flag in rest)
    return args


def measured(case: Case, file: Path | None) -> bool:
    """Measures a case, prints its line, writes it to the file; whether it is fast enough."""
    try:
        row = gpu_steps.largest_batch(case, lambda one: in_own_process(gpu_steps.measure, one))
    except OutOfMemoryError as error:
        print(f"{case.recipe}, phase {case.phase + 1}: {error.rows} rows do not fit", flush=True)
        return False
    print(line(row), flush=True)
    if file is not None:
        with file.open("a") as lines:
            lines.write(json.dumps(row) + "\n")
    return bool(row["share"] >= LEAST_SHARE)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table, one line when each phase is done; returns the exit status."""
    args = parse(argv)
    found = in_own_process(gpu_steps.platform)
    if found != "gpu" and not (args.allow_cpu and found == "cpu"):
        print(f"JAX finds no GPU on this machine, only a {found.upper()}.", file=sys.stderr)
        return 2
    rows = args.rows or (None if found == "gpu" else CPU_ROWS)
    counts = in_own_process(gpu_steps.phase_counts, args.models, args.settings)
    print(HEADER, flush=True)
    names: dict[bool, list[str]] = {True: [], False: []}
    for recipe, count in zip(args.models, counts, strict=True):
        for phase in range(count):
            enough = measured(Case(recipe, phase, args.steps, args.settings, rows), args.json)
            names[enough].append(f"{recipe} (phase {phase + 1})")
    print(f"At least {LEAST_SHARE:.0%} of matmul: {', '.join(names[True]) or 'none'}.")
    print(f"Less: {', '.join(names[False]) or 'none'}.")
    for (recipe, number), known in PUBLISHED.items():
        if recipe in args.models:
            print(f"Published for {recipe}, phase {number}: {known.conditions} ({known.source}).")
    return 1 if names[False] else 0


if __name__ == "__main__":
    sys.exit(main())

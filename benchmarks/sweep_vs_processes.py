"""Times a sweep of nine runs, three rates with three seeds, against nine processes started anew.

    python benchmarks/sweep_vs_processes.py --source runs/bert-mini --data_dir data/glue_mrpc
    python benchmarks/sweep_vs_processes.py --source runs/bert-mini --data_dir data/glue_mrpc \\
        -- --epochs 1 --examples 256

What follows -- are further flags of `t5x_like finetune`, for all runs. Both sides do the same: the
losses of each run are compared. Both read tokens that were cached before, and neither has a cache
of compiled programs on disk. The seconds of steps and of evaluations are those of `summary.json`:
what is left is what a sweep can save.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from t5x_like.sweeps.table import Table
from t5x_like.training.logs.metrics_file import METRICS_FILE, read_metrics

RATES, SEEDS = ("5e-4", "1e-3", "2e-3"), ("0", "1", "2")
T5X_LIKE = (sys.executable, "-m", "t5x_like")
_COMPILED = "JAX_COMPILATION_CACHE_DIR"


def timed(command: Sequence[str], log: Path) -> float:
    """The seconds of wall time that a command takes; its output goes to a file."""
    environment = {name: value for name, value in os.environ.items() if name != _COMPILED}
    begun = time.perf_counter()
    with log.open("ab") as file:
        subprocess.run(command, check=True, stdout=file, stderr=file, env=environment)
    return time.perf_counter() - begun


def losses(run: Path) -> list[float]:
    """The losses that a run has logged."""
    lines = read_metrics(run / METRICS_FILE)
    return [line["train/loss"] for line in lines if "train/loss" in line]


def seconds(run: Path) -> dict[str, float]:
    """The wall time of a run by kind."""
    kinds: dict[str, float] = json.loads((run / "summary.json").read_text())["seconds"]
    return kinds


def main() -> None:
    """Runs both sides, and prints what they took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", required=True, help="the pretrained model")
    parser.add_argument("--task", default="mrpc", help="a task by name (default: mrpc)")
    parser.add_argument("--data_dir", required=True, help="folder of its files")
    parser.add_argument("flags", nargs="*", help="further flags of finetune, after --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        log, shared = work / "log.txt", ("--cache_dir", str(work / "cache"))
        learned = (args.source, "--task", args.task, "--data_dir", args.data_dir, *args.flags)
        for seed in SEEDS:  # of examples, each seed has rows of its own, which are cached here
            warm = (
                *learned,
                *shared,
                "--seed",
                seed,
                "--gin.TRAIN_STEPS=1",
                "--gin.WARMUP_STEPS=0",
            )
            timed((*T5X_LIKE, "finetune", *warm, "--model_dir", str(work / f"warm{seed}")), log)
        runs, apart = {}, []
        for seed, rate in itertools.product(SEEDS, RATES):
            run = runs[float(rate), int(seed)] = work / f"rate {rate}, seed {seed}"
            flags = ("--learning_rate", rate, "--seed", seed, "--model_dir", str(run))
            apart.append(timed((*T5X_LIKE, "finetune", *learned, *shared, *flags), log))
            print(f"{run.name}: {apart[-1]:.1f} s", flush=True)
        sweep = (*learned, *shared, "--grid", f"learning_rate={','.join(RATES)}")
        model_dir = ("--model_dir", str(work / "sweep"))
        together = timed((*T5X_LIKE, "sweep", *sweep, "--seeds", "3", *model_dir), log)
        table = Table.read(work / "sweep")
        trials = {
            (result.setting["learning_rate"], result.seed): Path(table.run(result))
            for result in table.results
        }
        if any(losses(trials[place]) != losses(run) for place, run in runs.items()):
            sys.exit("the runs of the sweep are not those of the processes")
        for side, of_side in (("processes", runs), ("sweep", trials)):
            kinds = [*map(seconds, of_side.values())]
            total = {kind: sum(of_run[kind] for of_run in kinds) for kind in kinds[0]}
            shown = ", ".join(
                f"{kind} {value:.1f}" for kind, value in total.items() if value >= 0.1
            )
            print(f"{side}: seconds of the runs: {shown}")
        print(table)
    print(
        f"nine processes {sum(apart):.1f} s, sweep {together:.1f} s: {together / sum(apart):.3f} "
        "of their time; the same losses"
    )


if __name__ == "__main__":
    main()

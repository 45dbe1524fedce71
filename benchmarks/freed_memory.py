"""Compares CPU training whose process keeps the memory it frees with training that does not.

    python benchmarks/freed_memory.py
    python benchmarks/freed_memory.py --steps 6 --rounds 1 --recipe bert_base --gin.WARMUP_STEPS=1

`t5x_like train` asks the C library to keep it (`t5x_like.cli.common.host_memory`). The two runs
take turns, each in its own process. The ratios are of the median times of a step, without the
first half of the steps, and of the median peaks of memory. Further flags go to `train`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from t5x_like.training.logs.metrics_file import METRICS_FILE, read_metrics

RUN = """
import json, resource, sys
from t5x_like.cli import main
from t5x_like.cli.common import host_memory
if sys.argv[1] == "returned":
    host_memory.keep_freed = lambda: None
status = main.main(sys.argv[3:])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
open(sys.argv[2], "w").write(json.dumps(peak * 1024))
sys.exit(status)
"""


def measure(how: str, flags: Sequence[str], *, steps: int) -> tuple[float, float]:
    """Seconds of a step, and bytes at the peak, of a run that keeps freed memory or does not."""
    with tempfile.TemporaryDirectory() as folder:
        peak = Path(folder, "peak.json")
        bindings = {
            "MODEL_DIR": repr(str(Path(folder, "run"))),
            "TRAIN_STEPS": steps,
            "LOG_PERIOD": max(1, steps // 2),
            "EVAL_PERIOD": 0,
            "CHECKPOINT_PERIOD": 0,
        }
        flags = [*flags, *(f"--gin.{name}={value}" for name, value in bindings.items())]
        command = [sys.executable, "-c", RUN, how, str(peak), "train", *flags]
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        lines = [*read_metrics(Path(folder, "run", METRICS_FILE))]
        speed = [line["train/steps_per_second"] for line in lines if "train/loss" in line][-1]
        return 1 / speed, json.loads(peak.read_text())


def main() -> None:
    """Runs both in turn and prints the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="t5-mini", help="default: t5-mini")
    parser.add_argument("--steps", type=int, default=60, help="of each run (default: 60)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (default: 3)")
    args, flags = parser.parse_known_args()
    flags += ["--recipe", args.recipe]
    found: dict[str, list[tuple[float, float]]] = {"returned": [], "kept": []}
    for _ in tqdm(range(args.rounds), unit="round"):
        for how, runs in found.items():
            runs.append(measure(how, flags, steps=args.steps))
    medians = {
        how: [statistics.median(column) for column in zip(*runs, strict=True)]
        for how, runs in found.items()
    }
    for how, (seconds, peak) in medians.items():
        print(f"{how:9} {1000 * seconds:8.1f} ms a step  {peak / 2**20:8.0f} MiB at the peak")
    (slow, less), (fast, more) = medians["returned"], medians["kept"]
    print(f"kept: {slow / fast:.2f} times as fast, {more / less:.2f} times the memory")


if __name__ == "__main__":
    main()

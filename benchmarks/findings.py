"""Claims of the papers at a small size: trains the sides of each, measures them, writes the page.

    python benchmarks/findings.py --data data --resume

Sides are gin files, `benchmarks/sides/<finding>/<side>.gin`. Every finished run is appended to
`docs/results/findings.jsonl`, from which the tables of `docs/results/findings.md` are made. With
`--resume`, it makes only the missing runs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import finding_data
import finding_plots
import finding_tables
import recorded
from tqdm import tqdm

from t5x_like.training.logs.metrics_file import METRICS_FILE, read_metrics

HERE = Path(__file__).resolve().parent
GIN = HERE / "sides"
RESULTS = HERE.parent / "docs" / "results"
T5X_LIKE = (sys.executable, "-m", "t5x_like")
TASKS = {"MIXTURE_OR_TASK_MODULE": str(GIN / "downstream" / "tasks.py")}


@dataclasses.dataclass(frozen=True)
class Finding:
    """What the sides of a finding have in common.

    Attributes:
      corpus: value of `CORPUS`.
      sides: names of its gin files, in the order of its table.
      probed: whether linear probes read the features of each run.
      tuned_on: names of `downstream/*.gin`, on which each run is fine-tuned.
      evaluated: flags of `t5x_like eval`, where held-out text gets other noise.
    """

    corpus: str
    sides: tuple[str, ...]
    probed: bool = False
    tuned_on: tuple[str, ...] = ()
    evaluated: tuple[str, ...] = ()


FINDINGS = {
    "electra": Finding(
        finding_data.WIKI,
        (
            *("electra", "electra_weight_50", "all_tokens_mlm", "replace_mlm", "electra_15"),
            *("bert", "bert_equal_compute", "untrained"),
        ),
        probed=True,
    ),
    "masking": Finding(
        finding_data.PLAYS,
        ("dynamic", "static_10", "static_1"),
        # The noise of held-out text follows from the objective: here it is the same for all.
        evaluated=("--gin.mlm.MaskedLM.static=True", "--gin.mlm.MaskedLM.dupe_factor=10"),
    ),
    "albert": Finding(
        finding_data.SENTENCES,
        ("share_all", "share_attention", "share_ffn", "share_none", "next_sentence"),
        probed=True,
    ),
    "t5": Finding(
        finding_data.WIKI,
        (
            *("none", "prefix_lm", "bert_style", "deshuffling", "mass_style"),
            *("replace_spans", "drop_tokens"),
            *(f"replace_spans_rate_{rate}" for rate in (10, 25, 50)),
            *(f"span_length_{length}" for length in (2, 3, 5)),
        ),
        tuned_on=("e2e", "sst2"),
    ),
    "xlnet": Finding(finding_data.NOVELS, ("memory_0", "memory_32", "memory_128")),
}


@dataclasses.dataclass(frozen=True)
class Stage:
    """One command of a run.

    Attributes:
      name: what it makes; for one that measures, the first part of its metrics' names.
      command: its command; if it measures, without `--output`.
      trains: whether it trains (otherwise it measures).
    """

    name: str
    command: tuple[str, ...]
    trains: bool = False


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: a side of a finding with one seed."""

    finding: str
    side: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.finding}/{self.side}/{self.seed}"

    @property
    def settings(self) -> str:
        """A digest of all its configurations but the seed; other runs are not compared with it."""
        return _settings(self.finding, self.side)

    @property
    def folder(self) -> str:
        """Its MODEL_DIR, which depends on its settings, so that runs are never confused."""
        return f"runs/{self.finding}/{self.side}-{self.settings}/{self.seed}"

    def stages(self) -> Iterator[Stage]:
        """Trains, measures on held-out text, probes, fine-tunes."""
        finding, run = FINDINGS[self.finding], self.folder
        everything = ("--batches", "1000")
        yield self._training(f"{self.finding}/{self.side}.gin", run, CORPUS=finding.corpus)
        yield Stage("held_out", (*T5X_LIKE, "eval", run, *everything, *finding.evaluated))
        if finding.probed:
            probes = (sys.executable, str(HERE / "probes.py"), run, "--data", "data")
            yield Stage("probe", probes)
        for task in finding.tuned_on:
            tuned = f"{run}-{task}"
            yield self._training(f"downstream/{task}.gin", tuned, INIT_DIR=run, **TASKS)
            yield Stage(task, (*T5X_LIKE, "eval", tuned, *everything))

    def _training(self, gin: str, model_dir: str, **bindings: Any) -> Stage:
        bound = {"MODEL_DIR": model_dir, "SEED": self.seed, **bindings}
        flags = [f"--gin.{name}={value!r}" for name, value in bound.items()]
        files = (f"--gin_file={gin}", f"--gin_search_paths={GIN}")
        return Stage("train", (*T5X_LIKE, "train", *files, *flags), trains=True)


@functools.cache
def _settings(finding: str, side: str) -> str:
    files = [f"{finding}/{side}.gin", *(f"downstream/{x}.gin" for x in FINDINGS[finding].tuned_on)]
    digests = [recorded.settings([file], folders=[str(GIN)]) for file in files]
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:12]


def run(job: Job, work: Path) -> dict[str, Any]:
    """Trains and measures.

    Returns:
      A line of the results: what is known of the run.

    Raises:
      recorded.CommandError: a command failed; its log is named.
    """
    began = time.monotonic()
    metrics: dict[str, float] = {}
    commands = []
    log = work / "logs" / f"{job.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    output = log.with_suffix(".json")
    for stage in job.stages():
        commands.append(recorded.command_text(stage.command))
        if stage.trains:
            recorded.execute(stage.command, cwd=work, log=log)
            continue
        recorded.execute([*stage.command, "--output", str(output)], cwd=work, log=log)
        found = _flat(json.loads(output.read_text()))
        metrics |= {f"{stage.name}/{name}": value for name, value in found.items()}
    return {
        **dataclasses.asdict(job),
        "settings": job.settings,
        "commands": commands,
        "seconds": round(time.monotonic() - began),
        **_size(work / job.folder, log),
        "metrics": metrics,
    }


def _size(folder: Path, log: Path) -> dict[str, Any]:
    """Steps, parameters and compute of a run."""
    lines = [line for line in read_metrics(folder / METRICS_FILE) if "train/loss" in line]
    # Forward and backward, for tokens that are not padding. A single step has no speed.
    speed, flops = "train/steps_per_second", "train/flops_per_second"
    a_step = [line[flops] / line[speed] for line in lines if flops in line] or [0.0]
    (parameters, *_) = re.findall(r"([\d,]+) parameters", log.read_text(encoding="utf-8"))
    return {
        "steps": lines[-1]["step"],
        "parameters": int(parameters.replace(",", "")),
        "flops": lines[-1]["step"] * sum(a_step) / len(a_step),
    }


def _flat(found: dict[str, Any]) -> dict[str, float]:
    """{"a": {"b": 1}} as {"a/b": 1}; the name of `eval`'s one task is left out."""
    if "tasks" in found:
        (found,) = found["tasks"].values()
    flat: dict[str, float] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            flat |= {f"{name}/{inner}": x for inner, x in _flat(value).items()}
        else:
            flat[name] = value
    return flat


def label(finding: str, side: str) -> str:
    """The name of a side: the first comment of its gin file."""
    return (GIN / finding / f"{side}.gin").read_text().partition("\n")[0].removeprefix("# ")


def counting(lines: Sequence[dict[str, Any]]) -> dict[Job, dict[str, Any]]:
    """The newest line of each run whose settings are the current ones."""
    found = {}
    for line in lines:
        finding = FINDINGS.get(line["finding"])
        if finding is not None and line["side"] in finding.sides:
            job = Job(line["finding"], line["side"], line["seed"])
            if line["settings"] == job.settings:
                found[job] = line
    return found


def write_page(output: Path) -> None:
    """Makes the page's tables and pictures again."""
    lines = counting(recorded.read(output / "findings.jsonl"))
    sides = {
        name: {side: label(name, side) for side in finding.sides}
        for name, finding in FINDINGS.items()
    }
    page = output / "findings.md"
    text = finding_tables.fill_tables(page.read_text(encoding="utf-8"), [*lines.values()], sides)
    page.write_text(text, encoding="utf-8")
    for name, columns in finding_tables.COLUMNS.items():
        if mine := [line for line in lines.values() if line["finding"] == name]:
            picture = output / "findings" / f"{name}.png"
            picture.parent.mkdir(exist_ok=True)
            finding_plots.drawn(mine, sides[name], columns).savefig(picture)


def main() -> int:
    """Makes the missing runs; 1 if one of them failed."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=finding_data.prepare.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("data"),
        help="the folder with the data sets named below (default: data)",
    )
    parser.add_argument("--work", type=Path, default=Path(), help="default: here")
    parser.add_argument("--output", type=Path, default=RESULTS, help="default: docs/results")
    parser.add_argument("--only", default=",".join(FINDINGS), help="findings, comma-separated")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each side (default: 3)")
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at a time, each on a core of its own"
    )
    parser.add_argument("--resume", action="store_true", help="leave out runs that have a line")
    parser.add_argument("--page", action="store_true", help="make the tables and pictures alone")
    args = parser.parse_args()
    if args.page:
        write_page(args.output)
        return 0
    chosen = args.only.split(",")
    if unknown := set(chosen) - FINDINGS.keys():
        parser.error(f"--only: {', '.join(sorted(unknown))}? There are {', '.join(FINDINGS)}")
    if args.jobs < 1 or args.seeds < 1:
        parser.error("--jobs and --seeds: 1 or more")
    work = args.work.resolve()
    # Runs that differ only in their seed are the same program.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(work / "compiled"))
    try:
        finding_data.prepare(args.data, work)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    jobs = [
        Job(name, side, seed)
        for seed in range(args.seeds)
        for name in chosen
        for side in FINDINGS[name].sides
    ]
    lines = args.output / "findings.jsonl"
    if args.resume:
        done = counting(recorded.read(lines))
        jobs = [job for job in jobs if job not in done]
    return _run_all(jobs, lines, work=work, at_once=args.jobs)


def _run_all(jobs: Sequence[Job], lines: Path, *, work: Path, at_once: int) -> int:
    """Runs them, `at_once` at a time, and appends each that ends; 1 if one failed."""
    about = {"machine": {**recorded.machine(), "at_once": at_once}}
    for job in jobs:  # all first: a file may be edited while runs go on
        _ = job.settings
    bar, lock, failed = tqdm(total=len(jobs), unit="run"), threading.Lock(), []

    def one(job: Job) -> None:
        try:
            line = run(job, work) | about
        except Exception as error:  # the others continue
            failed.append(job)
            bar.write(f"{job.name} failed: {error}")
        else:
            with lock:
                recorded.append(lines, line)
            bar.write(f"{job.name}: {line['seconds'] / 60:.1f} minutes")
        bar.update()

    cores = sorted(os.sched_getaffinity(0))[:at_once] if hasattr(os, "sched_getaffinity") else []
    free = iter(cores if at_once > 1 else [])

    def on_a_core() -> None:
        if (core := next(free, None)) is not None:
            os.sched_setaffinity(0, {core})  # for this thread and what it starts

    pool = concurrent.futures.ThreadPoolExecutor(at_once, initializer=on_a_core)
    try:
        concurrent.futures.wait([pool.submit(one, job) for job in jobs])
    finally:  # also after an interrupt: jobs that have not begun do not begin
        pool.shutdown(cancel_futures=True)
    bar.close()
    write_page(lines.parent)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

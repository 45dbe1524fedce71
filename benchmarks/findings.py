"""Claims of the papers at a small size: trains the sides of each, measures them, writes the page.

    python benchmarks/findings.py --resume

Sides are gin files, `benchmarks/sides/<finding>/<side>.gin`. Every finished run is appended to
`docs/results/findings.jsonl`, from which the tables of `docs/results/findings.md` are made; run
again with `--resume`, it goes on with the runs that are missing.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import queue
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import finding_data
import finding_tables
import recorded
from tqdm import tqdm

from t5x_like.training.logs import METRICS_FILE, read_metrics

HERE = Path(__file__).resolve().parent
GIN = HERE / "sides"
RESULTS = HERE.parent / "docs" / "results"
T5X_LIKE = (sys.executable, "-m", "t5x_like")


@dataclasses.dataclass(frozen=True)
class Finding:
    """What its sides have in common.

    Attributes:
      corpus: value of `CORPUS`.
      sides: names of its gin files, in the order of its table.
      probed: whether linear probes read the features of each run.
      tuned_on: names of `downstream/*.gin`, on which each run is fine-tuned.
    """

    corpus: str
    sides: tuple[str, ...]
    probed: bool = False
    tuned_on: tuple[str, ...] = ()


FINDINGS = {
    "electra": Finding(
        finding_data.WIKI,
        ("electra", "all_tokens_mlm", "replace_mlm", "electra_15", "bert", "bert_equal_compute"),
        probed=True,
    ),
    "masking": Finding(finding_data.PLAYS, ("dynamic", "static_10", "static_1")),
    "albert": Finding(
        finding_data.WIKI,
        ("share_all", "share_attention", "share_ffn", "share_none", "next_sentence"),
        probed=True,
    ),
    "t5": Finding(
        finding_data.WIKI,
        (
            *("none", "prefix_lm", "bert_style", "deshuffling", "mass_style"),
            *("replace_spans", "drop_tokens"),
            *(f"replace_spans_rate_{rate}" for rate in (10, 25, 50)),
            *(f"span_length_{length}" for length in (2, 3, 5, 10)),
        ),
        tuned_on=("e2e", "sst2"),
    ),
    "xlnet": Finding(finding_data.NOVELS, ("memory_0", "memory_32", "memory_128")),
}


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
        """A digest of the gin files of its finding: runs with others are not compared."""
        files = [GIN / self.finding / f"{name}.gin" for name in ("shared", self.side)]
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]

    def train(self, gin: str, model_dir: str, **bindings: Any) -> list[str]:
        bound = {"MODEL_DIR": model_dir, "SEED": self.seed, **bindings}
        flags = [f"--gin.{name}={value!r}" for name, value in bound.items()]
        paths = f"--gin_search_paths={GIN}"
        return [*T5X_LIKE, "train", f"--gin_file={gin}", paths, *flags]

    def stages(self, data: Path) -> Iterator[tuple[str, list[str]]]:
        """(name, command) of each; those that measure take `--output` besides."""
        finding, run = FINDINGS[self.finding], f"runs/{self.name}"
        yield "train", self.train(f"{self.finding}/{self.side}.gin", run, CORPUS=finding.corpus)
        yield "held_out", [*T5X_LIKE, "eval", run]
        if finding.probed:
            yield "probe", [sys.executable, str(HERE / "probes.py"), run, "--data", str(data)]
        for task in finding.tuned_on:
            tuned = f"{run}-{task}"
            vocabulary = f"{run}/vocabulary"
            yield (
                f"train_{task}",
                self.train(f"downstream/{task}.gin", tuned, INIT_DIR=run, VOCABULARY=vocabulary),
            )
            yield task, [*T5X_LIKE, "eval", tuned, "--batches", "200"]


def run(job: Job, *, data: Path, work: Path, core: int | None) -> dict[str, Any]:
    """Trains and measures.

    Returns:
      What is known of the run: a line of the results.

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
    for stage, command in job.stages(data):
        commands.append(recorded.shown(command))
        if stage.startswith("train"):
            recorded.execute(command, cwd=work, log=log, core=core)
            continue
        recorded.execute([*command, "--output", str(output)], cwd=work, log=log, core=core)
        found = json.loads(output.read_text())
        metrics |= {f"{stage}/{name}": value for name, value in _flat(found).items()}
    return {
        **dataclasses.asdict(job),
        "settings": job.settings,
        "commands": commands,
        "seconds": round(time.monotonic() - began),
        **_size(work / "runs" / job.name, log),
        "metrics": metrics,
    }


def _size(folder: Path, log: Path) -> dict[str, Any]:
    """Steps, parameters and compute of a run."""
    lines = [line for line in read_metrics(folder / METRICS_FILE) if "train/loss" in line]
    # Of a model's own FLOPs: forward and backward, of tokens that are no padding.
    a_step = [line["train/flops_per_second"] / line["train/steps_per_second"] for line in lines]
    (parameters, *_) = re.findall(r"([\d,]+) parameters", log.read_text(encoding="utf-8"))
    return {
        "steps": lines[-1]["step"],
        "parameters": int(parameters.replace(",", "")),
        "flops": lines[-1]["step"] * sum(a_step) / len(a_step),
    }


def _flat(found: dict[str, Any]) -> dict[str, float]:
    """{"a": {"b": 1}} as {"a/b": 1}; what `eval` says of its one task, without the task's name."""
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
    """What a side is called: the first comment of its gin file."""
    return (GIN / finding / f"{side}.gin").read_text().partition("\n")[0].removeprefix("# ")


def counting(lines: Sequence[dict[str, Any]]) -> dict[Job, dict[str, Any]]:
    """The newest line of each run whose settings are those of today."""
    found = {}
    for line in lines:
        finding = FINDINGS.get(line["finding"])
        if finding is not None and line["side"] in finding.sides:
            job = Job(line["finding"], line["side"], line["seed"])
            if line["settings"] == job.settings:
                found[job] = line
    return found


def write_page(output: Path) -> None:
    """Makes the tables of the page anew."""
    lines = counting(recorded.read(output / "findings.jsonl"))
    sides = {
        name: {side: label(name, side) for side in finding.sides}
        for name, finding in FINDINGS.items()
    }
    page = output / "findings.md"
    text = finding_tables.written(page.read_text(encoding="utf-8"), [*lines.values()], sides)
    page.write_text(text, encoding="utf-8")


def main() -> int:
    """Makes the runs that are missing; 1 if one of them failed."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=finding_data.prepare.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, help="a folder with the data sets named below")
    parser.add_argument("--work", type=Path, default=Path(), help="default: here")
    parser.add_argument("--output", type=Path, default=RESULTS, help="default: docs/results")
    parser.add_argument("--only", default=",".join(FINDINGS), help="findings, comma-separated")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each side (default: 3)")
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at a time, each on a core of its own"
    )
    parser.add_argument("--resume", action="store_true", help="leave out runs that have a line")
    parser.add_argument("--page", action="store_true", help="make the tables of the page alone")
    args = parser.parse_args()
    if args.page:
        write_page(args.output)
        return 0
    if args.data is None:
        parser.error("--data is needed: a folder with the data sets")
    chosen = args.only.split(",")
    if unknown := set(chosen) - FINDINGS.keys():
        parser.error(f"--only: {', '.join(sorted(unknown))}? There are {', '.join(FINDINGS)}")
    finding_data.prepare(args.data, args.work)
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
    return _run_all(jobs, lines, data=args.data.resolve(), work=args.work, at_once=args.jobs)


def _run_all(jobs: Sequence[Job], lines: Path, *, data: Path, work: Path, at_once: int) -> int:
    """Runs them, `at_once` at a time, and appends each that ends; 1 if one failed."""
    machine = recorded.machine()
    cores: queue.Queue[int | None] = queue.Queue()
    usable = sorted(os.sched_getaffinity(0)) if at_once > 1 else [None]
    for core in usable[:at_once]:
        cores.put(core)

    def one(job: Job) -> dict[str, Any]:
        core = cores.get()
        try:
            return run(job, data=data, work=work, core=core)
        finally:
            cores.put(core)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        futures = {pool.submit(one, job): job for job in jobs}
        bar = tqdm(concurrent.futures.as_completed(futures), total=len(jobs), unit="run")
        for future in bar:
            name = futures[future].name
            try:
                recorded.append(lines, {**future.result(), "machine": machine})
            except recorded.CommandError as error:
                failed = 1
                bar.write(f"{name} failed: {error}")
            else:
                bar.write(f"{name} done")
    write_page(lines.parent)
    return failed


if __name__ == "__main__":
    sys.exit(main())

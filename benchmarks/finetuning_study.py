# ruff: noqa: E501 (prose)
"""Fine-tunes small pretrained models and untrained ones on six tasks, and writes the page of results.

    python benchmarks/finetuning_study.py --data data --work study
    python benchmarks/finetuning_study.py --page

It pretrains `bert-mini` and `t5-mini` first. All runs lie in the folder --work, in runs/, where an
ended one is not made again; the commands' output is in logs/. A finished run is a line of
docs/results/finetuning.jsonl, from which the page is made; those of bag-of-words models
(`finetuning_floors.py`) are lines too. `--only bert-mini/mrpc` makes a part of the runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import finetuning_floors
import recorded
from tqdm import tqdm

from t5x_like.training.logs.metrics_file import METRICS_FILE, read_metrics

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
LINES, PAGE = RESULTS / "finetuning.jsonl", RESULTS / "finetuning.md"
T5X_LIKE = (sys.executable, "-m", "t5x_like")
SEEDS = (0, 1, 2)
UNTRAINED = ("--train_steps", "2", "--gin.PEAK_LEARNING_RATE=0.0", "--gin.WARMUP_STEPS=1")
Line = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Body:
    """A small model, pretrained for about twenty minutes of two cores, and the same untrained.

    Attributes:
      pretraining: flags of `t5x_like train`.
      untrained: flags after those, with which it learns nothing.
      tuning: flags of `t5x_like finetune`.
    """

    pretraining: tuple[str, ...]
    untrained: tuple[str, ...]
    tuning: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
      files: flags that name its files, below the folder of data.
      metrics: names of metrics in the log, the first of which chooses the best epoch.
      epochs: for each model that learns it.
      more: further flags.
    """

    files: tuple[str, ...]
    metrics: tuple[str, ...]
    epochs: dict[str, float]
    more: tuple[str, ...] = ()


BODIES = {
    "bert-mini": Body(
        ("--train_steps", "9000", "--gin.short/run.Phase.steps=6000"),
        (*UNTRAINED, "--gin.PHASES=()"),
        ("--learning_rate", "1e-3"),
    ),
    "t5-mini": Body(
        ("--train_steps", "3000"),
        ("--train_steps", "2", "--gin.schedules.rsqrt.scale=0.0"),
        ("--batch_size", "32", "--learning_rate", "1e-2"),
    ),
}
TASKS = {
    "mrpc": Task(
        ("--task", "mrpc", "--data_dir", "{data}/glue_mrpc"),
        ("f1", "accuracy"),
        {"bert-mini": 3, "t5-mini": 3},
    ),
    "stsb": Task(
        ("--task", "stsb", "--data_dir", "{data}/glue_stsb"),
        ("pearson", "spearman"),
        {"bert-mini": 3, "t5-mini": 3},
    ),
    "wnut17": Task(
        ("--train", "{data}/wnut17_germeval/wnut17train.conll.gz"),
        ("entity_f1",),
        {"bert-mini": 5},
    ),
    "sst2": Task(
        ("--task", "sst2", "--data_dir", "{data}/glue_sst2"),
        ("accuracy",),
        {"bert-mini": 1, "t5-mini": 0.5},
        ("--length", "48"),
    ),
    "squad2": Task(
        ("--train", "{data}/squad/train_subset.json.gz", "--dev", "{data}/squad/dev_half.json.gz"),
        ("f1", "exact"),
        {"bert-mini": 2},
        ("--length", "256"),
    ),
    "e2e": Task(
        ("--train", "{data}/e2e_nlg/train.jsonl.gz", "--dev", "{data}/e2e_nlg/devset.csv.gz"),
        ("bleu",),
        {"t5-mini": 0.3},
    ),
}


@dataclasses.dataclass(frozen=True)
class Job:
    """One fine-tuning."""

    body: str
    task: str
    trained: bool
    seed: int

    @property
    def name(self) -> str:
        """Where it lies in runs/."""
        return f"{source(self.body, self.trained)}-{self.task}-{self.seed}"

    def command(self, data: str) -> tuple[str, ...]:
        """The command, in the folder of the runs."""
        task = TASKS[self.task]
        files = (word.format(data=data) for word in task.files)
        flags = ("--epochs", str(task.epochs[self.body]), "--seed", str(self.seed))
        where = ("--model_dir", f"runs/{self.name}", "--cache_dir", "cache")
        begun = f"runs/{source(self.body, self.trained)}"
        return (
            *(*T5X_LIKE, "finetune", begun, *files, *task.more),
            *(*BODIES[self.body].tuning, *flags, *where),
        )


def source(body: str, trained: bool) -> str:
    """The name of the run from which fine-tuning begins."""
    return body if trained else f"{body}-untrained"


def jobs() -> Iterator[Job]:
    """All runs, all tasks with one seed before those with the next."""
    for seed in SEEDS:
        for name, task in TASKS.items():
            for body in task.epochs:
                yield from (Job(body, name, trained, seed) for trained in (True, False))


def pretrain(body: str, trained: bool, data: str, work: Path) -> None:
    """Trains the run from which fine-tuning begins, unless it is there."""
    name = source(body, trained)
    if ended(work / "runs" / name):
        return
    flags = (*BODIES[body].pretraining, *(() if trained else BODIES[body].untrained))
    command = (
        *(*T5X_LIKE, "train", "--recipe", body, "--corpus", f"{data}/wiki_en/*.jsonl.gz"),
        *("--model_dir", f"runs/{name}", "--cache_dir", "cache", *flags),
    )
    recorded.execute(command, cwd=work, log=work / "logs" / f"{name}.log")


def ended(run: Path) -> bool:
    """Whether a run has ended as it should."""
    summary = run / "summary.json"
    return summary.exists() and json.loads(summary.read_text())["status"] == "finished"


def measured(job: Job, run: Path) -> Line:
    """The metrics of the best epoch."""
    task = TASKS[job.task]
    of_epochs: list[dict[str, float]] = []
    for line in read_metrics(run / METRICS_FILE):
        held_out = {
            name.rpartition("/")[2]: value
            for name, value in line.items()
            if name.startswith("eval/")
        }
        if "exact_match" in held_out:  # a T5 writes the name of the class
            held_out.setdefault("accuracy", held_out["exact_match"])
        if held_out.get(task.metrics[0]) is not None:  # of constant answers there is no correlation
            of_epochs.append({name: held_out[name] for name in task.metrics})
    best = max(of_epochs, key=lambda metrics: metrics[task.metrics[0]])
    return {**dataclasses.asdict(job), "metrics": best, "epochs": len(of_epochs)}


def lines() -> list[Line]:
    """The finished runs; of lines of one run the last counts."""
    if not LINES.exists():
        return []
    read = (json.loads(text) for text in LINES.read_text(encoding="utf-8").splitlines())
    keys = ("body", "task", "trained", "seed")
    return [*{tuple(line[key] for key in keys): line for line in read}.values()]


def append(line: Line) -> None:
    """Adds a line to the results."""
    with LINES.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


HEAD = """\
# Fine-tuning small models

Two models of about a million parameters were pretrained for some twenty minutes, and fine-tuned on real tasks, beside
the same models with newly drawn parameters and a model of bags of words. It shows that the whole way works: pretraining,
labels, training, metrics. Models of this size say little about larger ones.
`python benchmarks/finetuning_study.py` writes this page from [finetuning.jsonl](finetuning.jsonl).

- Each cell is the median of up to three seeds, with the least and the highest, of the best epoch on held-out rows. A
  number alone is that of one seed.
- Fine-tuning: rows are read as often as the table says, in batches of 32; the other settings are those of
  [finetuning.md](../finetuning.md#the-run), with rates of 1e-3 for `bert-mini` and 1e-2 for `t5-mini`.
- *untrained* has the parameters that pretraining began with, and learns as long from the labels.
- *bag of words* is a logistic regression on weighted counts of words and of two words (classes), of the words of both
  texts and of one (pairs), or of a word and its neighbours (tags); a ridge regression on the same (numbers); for E2E the
  text of the most similar input of the training rows; for SQuAD no answer to any question.
- Pretraining: `bert-mini` 9,000 steps of 128 rows (6,000 of 32 tokens, then of 64), `t5-mini` 3,000 steps of 128 rows, on
  6 million words of Wikipedia.
- SQuAD's training files are 4,719 questions (10 articles of SQuAD 2.0), its held-out files 6,078 (16 articles), of which
  half have no answer. WNUT-17's held-out rows are a tenth of its training files. BLEU is from 0 to 100, with all references of an input.

"""


def page(results: Sequence[Line]) -> str:
    """The page of all finished runs."""
    rows = [
        "| task | metric | model | epochs | pretrained | untrained | bag of words |",
        "|-|-|-|-:|-|-|-|",
    ]
    for name, task in TASKS.items():
        for metric in task.metrics:
            for body in task.epochs:
                cells = [
                    spread(
                        [
                            line["metrics"][metric]
                            for line in results
                            if (line["body"], line["task"], line["trained"]) == (of, name, trained)
                            and metric in line["metrics"]
                        ]
                    )
                    for of, trained in ((body, True), (body, False), ("bag of words", True))
                ]
                times = f"{task.epochs[body]:g}"
                rows.append(f"| {name} | `{metric}` | `{body}` | {times} | {' | '.join(cells)} |")
    return HEAD + "\n".join(rows) + "\n"


def spread(values: Sequence[float]) -> str:
    """The median with the extremes."""
    if not values:
        return ""
    median = f"{statistics.median(values):.3f}"
    if len(values) == 1:
        return median
    return f"{median} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    """Makes the runs that are missing, and the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="data", help="folder of the data sets")
    parser.add_argument("--work", default="study", help="folder of the runs")
    parser.add_argument("--only", nargs="*", default=[""], help="the first letters of MODEL/TASK")
    parser.add_argument("--page", action="store_true", help="write the page of the runs there are")
    args = parser.parse_args()
    if not args.page:
        work, data = Path(args.work), str(Path(args.data).resolve())
        (work / "logs").mkdir(parents=True, exist_ok=True)
        known = {(one["body"], one["task"], one["trained"], one["seed"]) for one in lines()}
        missing = [
            job
            for job in jobs()
            if f"{job.body}/{job.task}".startswith(tuple(args.only))
            and dataclasses.astuple(job) not in known
        ]
        for job in tqdm(missing, unit="run"):
            pretrain(job.body, job.trained, data, work)
            log = work / "logs" / f"{job.name}.log"
            recorded.execute(job.command(data), cwd=work, log=log)
            append(measured(job, work / "runs" / job.name))
        for task, metrics in finetuning_floors.all_of(Path(data)):
            append(
                {"body": "bag of words", "task": task, "trained": True, "seed": 0}
                | {"metrics": metrics}
            )
    PAGE.write_text(page(lines()), encoding="utf-8")


if __name__ == "__main__":
    main()

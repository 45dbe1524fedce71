"""Pretrains the models of the fine-tuning study, each for its share of the time.

A short run of a model gives the seconds of a step on this machine; these and the share give the
number of steps. Both are written to a file once, so that a study that goes on trains the same.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import recorded
from finetuning_settings import BODIES, CORPUS, HOURS, VOCAB_SIZE, Body

from t5x_like.core import whole_files
from t5x_like.training.logs.metrics_file import METRICS_FILE, read_metrics

T5X_LIKE = (sys.executable, "-m", "t5x_like")
TIMED_STEPS, FEWEST_STEPS = 60, 20
EVALUATIONS = 10
"""How often held-out text is evaluated, and a checkpoint saved."""
BESIDES_STEPS = 0.04
"""The part of the time that evaluations, checkpoints and compilation take."""
FILE = "pretraining.json"


class Study(NamedTuple):
    """Where a study is.

    Attributes:
      data: the folder of the data sets.
      work: the folder of runs, logs and caches.
      hours: how long it may take.
    """

    data: Path
    work: Path
    hours: float

    @property
    def share(self) -> float:
        """The part of a full study."""
        return min(1.0, self.hours / HOURS)

    def log(self, name: str) -> Path:
        """The file of a command's output."""
        folder = self.work / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.log"


def source(body: str, *, trained: bool) -> str:
    """The run from which fine-tuning begins, seen from the folder of work."""
    return f"runs/{body}" if trained else f"runs/{body}-random"


def fixed(study: Study, name: str) -> dict[str, Any]:
    """The steps of a body and its machine, timed the first time and read from a file later.

    Raises:
      CommandError: the model cannot be trained.
    """
    path = study.work / f"{name}-{FILE}"
    if path.exists():
        known: dict[str, Any] = whole_files.read_json(path)
        return known
    body = BODIES[name]
    seconds = _seconds_a_step(study, name, body)
    steps = max(FEWEST_STEPS, steps_of(body, seconds, study.hours))
    known = {"seconds_a_step": seconds, "steps": steps, "machine": recorded.machine()}
    whole_files.write(path, json.dumps(known, indent=1).encode())
    return known


def steps_of(body: Body, seconds: float, hours: float) -> int:
    """The steps for which a body's share of the time is enough."""
    return int(body.share * hours * 3600 * (1 - BESIDES_STEPS) / seconds)


def _command(study: Study, body: Body, run: str, steps: int, *more: str) -> tuple[str, ...]:
    return (
        *(*T5X_LIKE, "train", "--recipe", body.recipe, "--corpus", *_texts(study)),
        *("--gin.CORPUS_SEPARATOR='file'", "--vocab_size", str(VOCAB_SIZE)),
        *("--model_dir", run, "--cache_dir", "cache", "--train_steps", str(steps)),
        *(*body.pretraining, *more),
    )


def _texts(study: Study) -> list[str]:
    """The files of text, of which a shorter study reads some.

    Raises:
      FileNotFoundError: there are none.
    """
    chosen = []
    for pattern in CORPUS:
        files = sorted(map(str, study.data.glob(pattern)))
        if not files:
            raise FileNotFoundError(f"{study.data / pattern}: no such file")
        chosen += files[: math.ceil(len(files) * study.share)]
    return chosen


def _seconds_a_step(study: Study, name: str, body: Body) -> float:
    """The seconds that a step takes, with the wait for its rows."""
    run = f"runs/{name}-timed"
    periods = ("--gin.EVAL_PERIOD=0", "--gin.LOG_PERIOD=10", "--gin.CHECKPOINT_PERIOD=1000")
    command = _command(study, body, run, TIMED_STEPS, *periods)
    recorded.execute(command, cwd=study.work, log=study.log(f"{name}-timed"))
    summary = whole_files.read_json(study.work / run / "summary.json")
    seconds = summary["seconds"]
    return float(seconds["steps"] + seconds["input_wait"]) / int(summary["steps"])


def pretrain(study: Study, name: str, steps: int, *, trained: bool) -> None:
    """Trains the run from which fine-tuning begins, or goes on with it, unless it has ended.

    Raises:
      CommandError: it failed.
    """
    body, run = BODIES[name], source(name, trained=trained)
    if ended(study.work / run):
        return
    if trained:
        period = max(1, steps // EVALUATIONS)
        more: Sequence[str] = (
            f"--gin.EVAL_PERIOD={period}",
            f"--gin.CHECKPOINT_PERIOD={period}",
            "--gin.LOG_PERIOD=50",
        )
    else:
        steps, more = 2, body.random
    command = _command(study, body, run, steps, *more)
    recorded.execute(command, cwd=study.work, log=study.log(Path(run).name))


def ended(run: Path) -> bool:
    """Whether a run has ended as it should."""
    summary = run / "summary.json"
    return summary.exists() and whole_files.read_json(summary)["status"] == "finished"


def measured(study: Study, name: str, known: dict[str, Any]) -> dict[str, Any]:
    """The line of a pretraining: steps, tokens, minutes, the first and last held-out metric."""
    run = study.work / source(name, trained=True)
    summary = whole_files.read_json(run / "summary.json")
    lines = read_metrics(run / METRICS_FILE)
    metric = BODIES[name].held_out
    evaluated = [x for line in lines for key, x in line.items() if _is(key, metric)]
    return {
        "part": "pretraining",
        "body": name,
        "steps": summary["steps"],
        "parameters": summary["parameters"],
        "tokens": round(summary["tokens"]),
        "corpus_tokens": sum(text["tokens"] for text in summary["phases"][0]["texts"].values()),
        "minutes": round(sum(summary["seconds"].values()) / 60, 1),
        "metric": metric,
        "held_out": [evaluated[0], evaluated[-1]],
        "hours": study.hours,
        "machine": known["machine"],
    }


def _is(key: str, metric: str) -> bool:
    return key.startswith("eval/") and key.endswith(f"/{metric}")

"""Words of small files of labels, and the metrics of runs on them."""

from __future__ import annotations

from pathlib import Path

from t5x_like.training.logs.metrics_file import read_metrics

GOOD, BAD = ["fine", "lovely", "great"], ["dull", "poor", "awful"]
THINGS = ["film", "book", "song", "play", "story"]
NAMES = ["Ada", "Bert", "Cleo"]


def evaluations(run: Path, name: str) -> list[float]:
    lines = read_metrics(run / "metrics.jsonl")
    return [line[f"eval/{name}"] for line in lines if f"eval/{name}" in line]

"""Runs of the tiny model on a file whose texts have labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_run import HERE, Result, Tiny

from t5x_like.training.logs.metrics_file import read_metrics


def train(gin: str, tiny: Tiny, corpus: Path, **macros: Any) -> Result:
    given = {
        "MODEL_DIR": f"{tiny.root}/run",
        "CACHE_DIR": f"{tiny.root}/cache",
        "CORPUS": str(corpus),
        "VOCAB_TYPE": "wordpiece",
        **macros,
    }
    bindings = [f"--gin.{name}={value!r}" for name, value in given.items()]
    return tiny.cli("train", f"--gin_file={HERE / gin}", "--learning_rate=0.01", *bindings)


def assert_learned(run: Path, task: str) -> None:
    """Asserts that it was evaluated twice, and almost all answers were right at the end."""
    name = f"eval/{task}/accuracy"
    lines = read_metrics(run / "metrics.jsonl")
    accuracy = {line["step"]: line[name] for line in lines if name in line}
    assert [*accuracy] == [30, 60]
    assert accuracy[60] > 0.95


def assert_refused(tiny: Tiny, result: Result, error: str) -> None:
    """Asserts that a run ended with this error before it began."""
    assert result.status == 1
    assert error in " ".join(result.err.split())
    assert not (tiny.root / "run" / "config.gin").exists()

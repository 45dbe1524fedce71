"""Experiment trackers as callbacks; each needs its own package to be installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from t5x_like.training.callbacks import Callback, Outcome


class Wandb(Callback):
    """Weights & Biases: `Wandb(project="mine")`; needs `pip install wandb`.

    Arguments are those of `wandb.init`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options

    def start(self, run: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(config=dict(run), **self._options)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    evaluate = log

    def end(self, outcome: Outcome | None) -> None:
        self._run.finish(exit_code=0 if outcome else 1)


class MLflow(Callback):
    """MLflow: `MLflow(experiment_id="1")`; needs `pip install mlflow`.

    Arguments are those of `mlflow.start_run`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options

    def start(self, run: Mapping[str, Any]) -> None:
        import mlflow

        mlflow.start_run(**self._options)
        mlflow.log_params({name: str(value)[:500] for name, value in run.items()})

    def log(self, step: int, values: Mapping[str, float]) -> None:
        import mlflow

        mlflow.log_metrics({name.replace("/", "."): x for name, x in values.items()}, step=step)

    evaluate = log

    def end(self, outcome: Outcome | None) -> None:
        import mlflow

        mlflow.end_run("FINISHED" if outcome else "FAILED")

"""Experiment trackers as callbacks; each needs its own package to be installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from t5x_like.data.extras import require
from t5x_like.training.callbacks import Callback, Outcome


class Wandb(Callback):
    """Weights & Biases: `Wandb(project="mine")`; needs `pip install wandb`.

    Arguments are those of `wandb.init`.
    """

    def __init__(self, **options: Any) -> None:
        self._wandb = require("wandb", None, purpose="the tracker Wandb")
        self._options = options

    def start(self, run: Mapping[str, Any]) -> None:
        self._run = self._wandb.init(config=dict(run), **self._options)

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
        self._mlflow = require("mlflow", None, purpose="the tracker MLflow")
        self._options = options

    def start(self, run: Mapping[str, Any]) -> None:
        self._mlflow.start_run(**self._options)
        self._mlflow.log_params({name: str(value)[:500] for name, value in run.items()})

    def log(self, step: int, values: Mapping[str, float]) -> None:
        renamed = {name.replace("/", "."): x for name, x in values.items()}
        self._mlflow.log_metrics(renamed, step=step)

    evaluate = log

    def end(self, outcome: Outcome | None) -> None:
        self._mlflow.end_run("FINISHED" if outcome else "FAILED")


TRACKERS = {"wandb": Wandb, "mlflow": MLflow}
"""By the names that `t5x_like train --tracker` knows."""

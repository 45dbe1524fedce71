"""The trackers call their packages; stand-ins record the calls, as none is installed."""

from __future__ import annotations

import sys
import types

import pytest

import t5x_like as t5x
from t5x_like.training.callbacks import Callbacks, Outcome

RUN = {"model_dir": "runs/x", "config": "X = 1", "step": 0, "total_steps": 2}


class Recorder(types.ModuleType):
    """A stand-in for a module or for a function's result, which records every call."""

    def __init__(self, name: str, calls: list) -> None:
        super().__init__(name)
        self.calls = calls

    def __getattr__(self, name: str):
        def called(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return self

        return called


def told(tracker) -> None:
    one = Callbacks([tracker])
    one.start(RUN)
    one.log(1, {"loss": 2.0})
    one.evaluate(2, {"text/loss": 1.5})
    one.save(2, "runs/x/checkpoints")
    one.end(Outcome("finished", 2))


def test_wandb(monkeypatch) -> None:
    calls: list = []
    monkeypatch.setitem(sys.modules, "wandb", Recorder("wandb", calls))
    told(t5x.Wandb(project="mine"))
    assert calls == [
        ("init", (), {"config": RUN, "project": "mine"}),
        ("log", ({"loss": 2.0},), {"step": 1}),
        ("log", ({"text/loss": 1.5},), {"step": 2}),
        ("finish", (), {"exit_code": 0}),
    ]


@pytest.mark.parametrize("tracker", ["Wandb", "MLflow"])
def test_a_missing_package_is_said_before_any_work(monkeypatch, tracker: str) -> None:
    monkeypatch.setitem(sys.modules, tracker.lower(), None)
    with pytest.raises(ImportError, match=f"pip install {tracker.lower()}$"):
        getattr(t5x, tracker)()


def test_mlflow(monkeypatch) -> None:
    calls: list = []
    monkeypatch.setitem(sys.modules, "mlflow", Recorder("mlflow", calls))
    told(t5x.MLflow(run_name="mine"))
    assert [name for name, *_ in calls] == [
        *("start_run", "log_params", "log_metrics", "log_metrics", "end_run")
    ]
    assert calls[0][2] == {"run_name": "mine"}
    assert calls[3][1:] == (({"text.loss": 1.5},), {"step": 2})

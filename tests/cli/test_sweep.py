"""The flags of `t5x_like sweep`: values, ranges, tasks and examples, and what is not one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t5x_like.api import sweeps
from t5x_like.cli import main
from t5x_like.sweeps.table import Table


def test_flags_are_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {}

    def sweep(source: str, **arguments: Any) -> Table:
        given.update(arguments, source=source)
        return Table(Path("s"), [], left=0)

    monkeypatch.setattr(sweeps, "sweep", sweep)
    words = (
        "sweep runs/mine --task sst2,rte --grid learning_rate=1e-5,2e-5 --grid batch_size=16 "
        "--grid method=full,lora --grid FROZEN=(),('x',) --draw epochs=1..5 --examples 16,all "
        "--draw WEIGHT_DECAY=1e-3..0.1:log --trials 3 --stop_bad --gin.SEED=1 --rank 4"
    )
    assert main.main(words.split()) == 0
    assert "No trial has ended yet." in capsys.readouterr().out
    assert given["grid"] == {
        "learning_rate": [1e-5, 2e-5],
        "batch_size": [16],
        "method": ["full", "lora"],
        "FROZEN": [(), ("x",)],
    }
    assert given["draw"] == {"epochs": (1.0, 5.0), "WEIGHT_DECAY": (1e-3, 0.1, "log")}
    assert (given["task"], given["examples"]) == (["sst2", "rte"], [16, "all"])
    assert (given["trials"], given["seeds"], given["stop_bad"]) == (3, 3, True)
    assert (given["gin"], given["method"].rank) == (["SEED=1"], 4)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--grid learning_rate=a", "--grid learning_rate=a: not values of learning_rate"),
        ("--grid learning_rate", "name an axis and its values"),
        ("--grid BEST_METRIC=f1", "Strings have quotes of their own"),
        ("--draw learning_rate=1e-5", "a range is such as learning_rate=1e-5..1e-3:log"),
        ("--draw learning_rate=1..2:cube", "a range is such as"),
        ("--grid learnin_rate=1", "nearest: learning_rate"),
    ],
)
def test_what_is_not_a_value(flag: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["sweep", "runs/no", "--train", "no.csv", *flag.split()]) == 1
    assert said in " ".join(capsys.readouterr().err.split())

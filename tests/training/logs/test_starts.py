"""The account of a run over its starts: what was lost, how far it came, what it used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from etils import epath

from t5x_like.training.logs.energy import Assumptions, energy
from t5x_like.training.logs.ledger import Ledger
from t5x_like.training.logs.starts import StartsFile, read_starts, starts
from t5x_like.training.logs.summary import rates, summary

HOST = {
    "name": "a",
    "process": 0,
    "device_kind": "TPU v4",
    "devices": 4,
    "device_bytes": 32,
    "host_bytes": 100 * 10**9,
    "cores": 8,
}
ABOUT = {
    "hosts": [HOST, {**HOST, "process": 1}, {**HOST, "name": "b", "process": 2}],
    "phases": [
        {"start": 0, "batch_size": 10, "texts": {"x": {"tokens": 9, "rows": 100, "share": 1.0}}},
        {
            "start": 30,
            "batch_size": 20,
            "texts": {
                "x": {"tokens": 9, "rows": 50, "share": 0.75},
                "y": {"tokens": 9, "rows": None, "share": 0.25},
            },
        },
    ],
}


def line(start: int, step: int, first: int, steps: float, **more: Any) -> dict[str, Any]:
    """After `step` steps of the run, of which the start began after `first`."""
    totals = {"steps": step - first, "tokens": 10 * (step - first)}
    return {
        "start": start,
        "step": step,
        "time": 1000.0 * start + steps,
        "seconds": {"startup": 5.0, "steps": steps, "input_wait": steps / 10},
        "totals": totals,
        "rated": {**totals, "flops": 1e12 * totals["steps"]},
        **more,
    }


# Killed at 40 after a checkpoint of 20; killed again before the next; then to the end.
RECORDS = [
    line(1, 0, 0, 0.0, begun=995.0, about=ABOUT),
    line(1, 20, 0, 40.0),
    line(1, 40, 0, 80.0, joules=100.0),
    line(2, 20, 20, 0.0, about=ABOUT),
    line(2, 25, 20, 10.0),
    line(3, 20, 20, 0.0, about=ABOUT),
    line(3, 50, 20, 60.0, cpu_seconds=10.0, status="finished"),
]


def test_steps_that_were_taken_again_are_lost() -> None:
    found = starts(RECORDS)
    assert [(s.number, s.from_step, s.to_step, s.kept_step, s.status) for s in found] == [
        (1, 0, 40, 20, None),
        (2, 20, 25, 20, None),
        (3, 20, 50, 50, "finished"),
    ]
    assert [s.seconds["steps"] for s in found] == [40.0, 0.0, 60.0]
    assert [s.seconds["restarts"] for s in found] == [44.0, 11.0, 0.0]
    for start, whole in zip(found, (93.0, 16.0, 71.0), strict=True):
        assert sum(start.seconds.values()) == whole, "no second is lost or counted twice"
    assert sum(s.totals["tokens"] for s in found) == 10 * 50


def test_numbers_of_a_run_count_each_step_once() -> None:
    found = summary(starts(RECORDS), status="finished", checkpoints={}, memory={})
    assert (found["steps"], found["unrecorded_steps"], found["tokens"]) == (50, 0, 500)
    assert found["rows"] == 30 * 10 + 20 * 20
    assert found["texts"]["x"]["rows"] == 300 + 300
    assert found["texts"]["x"]["epochs"] == 300 / 100 + 300 / 50
    assert found["texts"]["y"]["epochs"] is None
    assert found["goodput"] == 100 / 180
    assert found["tokens_per_second"] == pytest.approx(500 / 110)
    # 12 devices of 275 TFLOP/s took 110 seconds for 50 steps of one TFLOP.
    assert found["mfu"] == pytest.approx(50 / (12 * 275 * 110))
    assert [start["status"] for start in found["starts"]] == ["killed", "killed", "finished"]
    json.dumps(found, allow_nan=False)


def test_steps_of_older_versions_are_counted_apart() -> None:
    found = summary(starts(RECORDS[3:]), status="running", checkpoints={}, memory={})
    assert (found["steps"], found["unrecorded_steps"], found["tokens"]) == (50, 20, 300)
    assert found["rows"] == 700, "a row is known from its step"


def test_energy_is_of_processors_memory_and_devices() -> None:
    (start,) = starts([RECORDS[5], RECORDS[6]])
    found = energy([start], Assumptions(pue=2.0, kg_per_kwh=0.5))
    seconds = 71.0
    processors = 3 * 10.0 * 12
    memory = 2 * 100 * 0.3725 * seconds
    devices = 12 * 192 * seconds
    assert found["kwh"] == pytest.approx(2 * (processors + memory + devices) / 3.6e6)
    assert found["kg_co2e"] == pytest.approx(found["kwh"] / 2)
    assert found["device_hours"] == pytest.approx(12 * seconds / 3600)
    given = energy([start], Assumptions(pue=1.0, watts_per_device=100))
    assert given["kwh"] == pytest.approx(12 * 100 * seconds / 3.6e6)


def test_measured_energy_takes_the_place_of_data_sheets() -> None:
    first = starts(RECORDS[:3])[0]
    found = energy([first], Assumptions())
    assert found["kwh_of"]["devices"] == pytest.approx(100 / 4 * 12 / 3.6e6)
    assert any("measured by NVML on the 4 of process 0" in said for said in found["basis"])


@pytest.mark.parametrize("hosts", [[{**HOST, "device_kind": "TPU v9"}], []])
def test_energy_is_not_guessed(hosts: list[Any]) -> None:
    found = energy(starts([line(1, 0, 0, 9.0, about={"hosts": hosts})]), Assumptions())
    assert (found["kwh"], found["kg_co2e"]) == (None, None)


def test_the_file_goes_on_after_damage(tmp_path: Path) -> None:
    path = epath.Path(tmp_path / "starts.jsonl")
    ledger = Ledger()
    StartsFile(path, ledger, 0).add(about=ABOUT)
    damaged = [
        '{"start": 1, "step": 1}',
        json.dumps(line(1, 2**60, 0, 1.0)),
        json.dumps(line(1, 1, 0, 1.0) | {"seconds": {"steps": "long"}}),
        json.dumps(line(1, 1, 0, 1.0) | {"status": 3}),
        '{"start": 1, "st',
    ]
    with path.open("a") as file:
        file.write("\n".join(damaged))
    later = StartsFile(path, ledger, 7)
    ledger.count("steps", 3)
    later.add()
    assert [(one["start"], one["step"]) for one in read_starts(path)] == [(1, 0), (2, 10)]


def test_facts_of_the_wrong_type_are_left_out() -> None:
    facts = {"hosts": [{"name": "a"}], "phases": 3, "versions": {"jax": "1"}, "parameters": True}
    (start,) = starts([line(1, 0, 0, 1.0, about=facts)])
    assert start.about == {"versions": {"jax": "1"}, "parameters": True}
    assert rates([start])["mfu"] is None

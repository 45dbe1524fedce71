"""The doctor says what is wrong before a run starts, and `train` says it too."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import pytest
from tiny_run import Result, Tiny

from t5x_like.runs.checks import findings, machines
from t5x_like.training.hosts import inventory


def doctor(tiny: Tiny, name: str, *flags: str, **macros: object) -> Result:
    return tiny.cli("doctor", *tiny.flags(name, *flags, **macros)[1:])


def states(result: Result) -> dict[str, list[str]]:
    """{subject: marks} of a printed table."""
    found: dict[str, list[str]] = {}
    for line in result.out.splitlines():
        mark, subject = line.split(":")[0].split(maxsplit=1)
        found.setdefault(subject, []).append(mark)
    return found


@pytest.mark.slow
def test_before_and_after_a_run(tiny: Tiny) -> None:
    before = doctor(tiny, "run")
    assert before.status == 0, before.err
    assert states(before) == {
        "devices": ["ok"],
        "versions": ["ok"],
        "run": ["ok"],
        "data": ["note"],
        "room": ["ok", "ok"],
        "directory": ["ok"],
        "memory": ["ok"],
    }
    assert "is not there yet. `train` makes it" in before.out
    run = tiny.trained("run", TRAIN_STEPS=1)
    after = doctor(tiny, "run")
    assert "whole, of this vocabulary" in after.out
    assert "has step 1, which `train` resumes" in after.out

    (index,) = (tiny.root / "cache").rglob("train.offsets.npy")
    content = bytearray(index.read_bytes())
    content[-1] ^= 1
    index.write_bytes(content)
    (run / "config.gin").unlink()
    damaged = doctor(tiny, "run", "--json")
    assert damaged.status == 1
    (wrong,) = (one for one in json.loads(damaged.out) if one["state"] == "bad")
    assert wrong["subject"] == "data"
    assert str(index) in wrong["text"]


@pytest.mark.parametrize(
    ("macros", "message"),
    [
        ({"MODEL_DIR": "/proc/t5x_like"}, "WRONG  directory: MODEL_DIR '/proc/t5x_like' cannot"),
        ({"MICROBATCHES": 3}, "WRONG  run: Batch size 8 does not split over"),
        ({"OBJECTIVE": "mlm"}, "WRONG  run: the kinds do not fit"),
    ],
)
def test_what_is_wrong_ends_it_with_1(macros: dict[str, object], message: str, tiny: Tiny) -> None:
    result = doctor(tiny, "run", **macros)
    assert result.status == 1
    assert message in result.out


def test_clocks_and_versions_of_all_hosts_are_compared() -> None:
    mine = inventory.this_host()
    other = dataclasses.replace(mine, name="other", clock=mine.clock + 100)
    old = dataclasses.replace(other, versions={**mine.versions, "jax": "0.1"})
    (note,) = machines.clocks([mine, other])
    assert note.state == "note"
    assert f"other is 100 s ahead of {mine.name}" in str(note)
    assert [one.state for one in machines.devices([mine, old])].count("bad") == 1
    assert not [one for one in machines.devices([mine, other]) if one.state == "bad"]
    assert not [*machines.clocks([mine])]


def test_findings_of_one_host_alone_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    both, one = findings.Finding("a", "good", "x"), findings.Finding("b", "bad", "y")
    texts = [json.dumps([dataclasses.astuple(it) for it in its]) for its in ([both], [both, one])]
    monkeypatch.setattr(findings.multihost, "every_text", lambda name, mine: texts)
    found = findings.of_all_hosts([both], ["first", "second"])
    assert [str(it) for it in found] == ["a: x", "b: y (on second)"]


@pytest.mark.slow
def test_train_says_that_a_disk_is_too_small(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    small = SimpleNamespace(free=700_000)  # a checkpoint has 600 kB
    monkeypatch.setattr(machines, "shutil", SimpleNamespace(disk_usage=lambda path: small))
    result = tiny.train("run", TRAIN_STEPS=1)
    assert result.status == 0, result.err
    assert "Note: room: a checkpoint takes" in result.err

"""Records are read as they were saved, and name only objectives."""

from __future__ import annotations

import dataclasses
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from t5x_like import objectives
from t5x_like.data.cache import task_records
from t5x_like.data.task import Task
from t5x_like.objectives.parts.formats import InputsAndTargets
from t5x_like.objectives.parts.geometry import PerRecord
from t5x_like.objectives.span_corruption import SpanCorruption

RECORDS = (
    Task(
        name="a",
        directory="tokens/a",
        objective=SpanCorruption(noise_density=0.3),
        steps=("trim",),
        eos={"targets": 1},
        weight=3,
    ),
    Task(name="b", directory="tokens/b", eos={}),
)


def test_records_come_back(tmp_path: Path) -> None:
    file = tmp_path / "tasks" / "mixture.json"
    assert not task_records.holds(file, RECORDS)
    task_records.save(file, RECORDS)
    assert task_records.load(file) == RECORDS
    assert task_records.holds(file, RECORDS)
    assert not task_records.holds(file, RECORDS[:1])


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of an objective."""

    rate: float
    spans: tuple[tuple[int, float], ...] = ()


@dataclasses.dataclass(frozen=True)
class Nested(InputsAndTargets):
    """An objective of parts, some of them objectives."""

    parts: tuple[Any, ...] = ()
    name: str | None = None
    exactly: bool = True

    def geometry(self, lengths):
        return PerRecord()


def test_objectives_of_parts_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A user's module would be registered like this. A test file is imported without a name.
    monkeypatch.setitem(sys.modules, __name__, types.SimpleNamespace(Part=Part, Nested=Nested))
    objective = Nested((Part(0.5, ((1, 2.0), (3, 4.5))), SpanCorruption(0.3), (1, (2,))), None)
    file = tmp_path / "task.json"
    task_records.save(file, [Task(name="a", directory="tokens/a", objective=objective, eos={})])
    (record,) = task_records.load(file)
    assert record.objective == objective
    assert repr(record.objective) == repr(objective), "noise is derived from it"


def test_all_presets_come_back(tmp_path: Path) -> None:
    for name, objective in objectives.presets().items():
        file = tmp_path / f"{name}.json"
        task_records.save(
            file, [Task(name=name, directory="tokens/a", objective=objective, eos={})]
        )
        (record,) = task_records.load(file)
        assert (record.objective, repr(record.objective)) == (objective, repr(objective))


@pytest.mark.parametrize("field", [[1], {"a": 1}, object(), SpanCorruption])
def test_fields_that_would_not_come_back_are_refused(field: Any, tmp_path: Path) -> None:
    record = Task(name="a", directory="tokens/a", objective=Nested((field,)), eos={})
    with pytest.raises(ValueError, match=r"cannot be kept in a task record.*frozen dataclasses"):
        task_records.save(tmp_path / "task.json", [record])


@pytest.mark.parametrize("content", ["", "{}x", "[1]", '[{"name": "a"}]', "null"])
def test_damaged_file_is_named(content: str, tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"task\.json is not a task record.*cache the task again"):
        task_records.load(file)


def test_unknown_module_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "task.json"
    task_records.save(file, RECORDS[:1])
    rows = json.loads(file.read_text())
    rows[0]["objective"]["class"] = "bad_module:Thing"
    file.write_text(json.dumps(rows))
    (tmp_path / "bad_module.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="MIXTURE_OR_TASK_MODULE='bad_module'"):
        task_records.load(file)


@pytest.mark.parametrize("name", ["os:remove", "t5x_like.objectives.span_corruption:NoSuch"])
def test_class_that_is_no_objective_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    task_records.save(file, RECORDS[:1])
    rows = json.loads(file.read_text())
    victim = tmp_path / "victim"
    victim.write_text("")
    rows[0]["objective"] = {"class": name, "fields": {"path": str(victim)}}
    file.write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=f"{name}, which is not an objective"):
        task_records.load(file)
    assert victim.exists()

"""Records come back as saved, and name nothing but objectives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from t5x_like.data import task_records
from t5x_like.data.task_records import TaskRecord
from t5x_like.objectives.span_corruption import SpanCorruption

RECORDS = (
    TaskRecord("a", "tokens/a", SpanCorruption(noise_density=0.3), ("trim",), {"targets": 1}, 3),
    TaskRecord("b", "tokens/b", None, (), {}),
)


def test_records_come_back(tmp_path: Path) -> None:
    file = tmp_path / "tasks" / "mixture.json"
    assert not task_records.holds(file, RECORDS)
    task_records.save(file, RECORDS)
    assert task_records.load(file) == RECORDS
    assert task_records.holds(file, RECORDS)
    assert not task_records.holds(file, RECORDS[:1])


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
    with pytest.raises(ValueError, match=f"{name}, which is no objective"):
        task_records.load(file)
    assert victim.exists()

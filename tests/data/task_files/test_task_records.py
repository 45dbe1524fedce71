"""Records are read as they were saved, and name only objectives."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from t5x_like import objectives
from t5x_like.data import user_modules
from t5x_like.data.cache.records import recorded_objects
from t5x_like.data.task import Task
from t5x_like.data.task_files import task_records
from t5x_like.objectives.parts.formats import InputsAndTargets
from t5x_like.objectives.parts.geometry import PerRecord
from t5x_like.objectives.span_corruption import SpanCorruption
from t5x_like.objectives.supervised.text_to_text import TextToText

RECORDS = (
    Task(
        name="a",
        directory="tokens/a",
        objective=SpanCorruption(noise_density=0.3),
        steps=("trim",),
        eos={"targets": 1},
        weight=3,
    ),
    Task(name="b", directory="tokens/b", objective=TextToText(), eos={}),
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
    # As if a user had named this file, which a test runner imports without a name.
    mine = types.SimpleNamespace(__name__=__name__, Part=Part, Nested=Nested)
    monkeypatch.setattr(user_modules, "named", lambda name: mine if name == __name__ else None)
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


def changed(file: Path, **fields: Any) -> Path:
    """A record of a task whose fields are those of a stranger."""
    task_records.save(file, RECORDS[:1])
    (row,) = json.loads(file.read_text())
    file.write_text(json.dumps([{**row, **fields}]))
    return file


def objective(name: str, **fields: Any) -> dict[str, Any]:
    return {"objective": {"class": f"t5x_like.objectives.{name}", "fields": fields}}


LAZY = {
    "class": "etils.epy.lazy_imports_utils:LazyModule",
    "fields": {"module_name": "this", "error_callback": None, "success_callback": None},
}
HOSTILE = {
    "a function": {"objective": {"class": "os:remove", "fields": {"path": "x"}}},
    "a class of Python": {"objective": {"class": "subprocess:Popen", "fields": {"args": "x"}}},
    "a lazy module": {"objective": LAZY},
    "a lazy module inside": objective("bart:BART", noises=[LAZY]),
    "our class that is not an objective": {
        "objective": {"class": "t5x_like.data.dataset:Data", "fields": {"corpus": "/etc/passwd"}}
    },
    "a part alone": objective("noise.token_noise:TokenMasking", rate=0.5),
    "a geometry": objective("parts.geometry:PerRecord"),
    "a private class": objective("roberta:_DynamicMasking"),
    "no such class": objective("span_corruption:NoSuch"),
    "no class": {"objective": {"class": 7, "fields": {}}},
    "no object": {"objective": [1]},
    "another field": objective("span_corruption:SpanCorruption", module_name="this"),
    "text for a number": objective("span_corruption:SpanCorruption", noise_density="0.3"),
    "infinity": objective("span_corruption:SpanCorruption", noise_density=float("inf")),
    "too large a share": objective("span_corruption:SpanCorruption", noise_density=3.0),
    "a number for a flag": objective("albert:ALBERT", favor_shorter=1),
    "a huge number of words": objective("albert:ALBERT", ngram=3_000_000_000),
    "a huge mean": objective(
        "bart:BART",
        noises=[
            {
                "class": "t5x_like.objectives.noise.text_infilling:TextInfilling",
                "fields": {"mean_span_length": 1e9},
            }
        ],
    ),
    "a step": {"steps": ["os.system"]},
    "another field of the task": {"cache": "x"},
    "a directory above": {"directory": "tokens/.."},
    "a directory elsewhere": {"directory": "/home/me/tokens"},
    "a number for a name": {"name": 7},
    "a negative weight": {"weight": -1},
    "ids of text": {"eos": {"targets": "1"}},
}


@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE)
def test_a_record_of_a_stranger_is_refused_by_name(
    fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazily = importlib.import_module("etils.epy.lazy_imports_utils")
    assert dataclasses.is_dataclass(lazily.LazyModule), "what a record could make of it"
    monkeypatch.delitem(sys.modules, "this", raising=False)
    with pytest.raises(ValueError, match=r"task\.json"):
        task_records.load(changed(tmp_path / "task.json", **fields))
    assert "this" not in sys.modules


def test_the_types_of_all_fields_are_known() -> None:
    hints = {
        f"{address}.{name}": hint
        for address, kind in recorded_objects._ours().items()
        for name, hint in recorded_objects._hints(kind).items()
    }
    parts = [name.partition("objectives.")[2] for name, hint in hints.items() if hint is object]
    # Protocols that only type checkers import: each is an object of the package.
    assert {*parts} == {
        f"denoising:{kind}.{name}"
        for kind in ("Denoising", "SeparatedDenoising")
        for name in ("noise", "inputs", "targets")
    }

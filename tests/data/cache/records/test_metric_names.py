"""Names of metric functions: found again where their modules are imported, and nowhere else."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from t5x_like.data import user_modules
from t5x_like.data.cache.records.metric_names import MetricNames

SOURCE = """
def share(targets, predictions, scale=1):
    return {"share": scale}

def word(text, example=None, is_target=False):
    return text.split()[0]

class Kind:
    def share(self, targets, predictions):
        return {}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module of the user's that the command has not named yet."""
    (tmp_path / "users_metrics.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(user_modules, "_named", set())
    yield importlib.import_module("users_metrics")
    sys.modules.pop("users_metrics", None)


def through_json(names: MetricNames) -> MetricNames:
    return MetricNames.from_json(json.loads(json.dumps(dataclasses.asdict(names))), "record")


def test_functions_are_found_with_their_bound_arguments(module: types.ModuleType) -> None:
    user_modules.import_module("users_metrics")
    values = {"of": [("a", None), 1.5]}
    scaled = functools.partial(functools.partial(module.share, scale=2), scale=values)
    names = through_json(MetricNames.of([module.share, scaled], module.word))
    functions, postprocess_fn, missing = names.functions()
    assert [one([], []) for one in functions] == [{"share": 1}, {"share": values}]
    assert (postprocess_fn, missing) == (module.word, [])
    word = functools.partial(module.word, classes=("no", ["yes"]))
    (found, _) = through_json(MetricNames.of([], word)).functions()[1:]
    assert found.keywords == word.keywords


def test_what_no_import_finds_is_named_with_the_reason(module: types.ModuleType) -> None:
    user_modules.import_module("users_metrics")
    bound = functools.partial(module.share, scale={1, 2})
    given = [lambda targets, predictions: {}, bound, module.Kind().share, module.share]
    names = MetricNames.of(given, None)
    _, _, (first, second, third) = names.functions()
    assert first.startswith("<lambda> (a lambda or closure")
    assert second.startswith("share (its arguments [[], {'scale': {1, 2}}] are not JSON")
    assert third.startswith("share (a lambda or closure, or another object")
    without = MetricNames.of([module.share], lambda text, example=None, is_target=False: text)
    assert without.functions()[0] == []
    assert without.functions()[2][0].startswith("share (its postprocess_fn: <lambda>")


def test_a_record_names_no_module_that_the_user_has_not_named(module: types.ModuleType) -> None:
    names = through_json(MetricNames.of([module.share], module.word))
    functions, _, missing = names.functions()
    assert functions == []
    assert missing == ["share (postprocess_fn: add --module users_metrics, if you trust it)"]
    user_modules.import_module("users_metrics")
    assert names.functions()[0] == [module.share]


@pytest.mark.parametrize(
    "address",
    [
        *("os:system", "subprocess:run", "builtins:exec", "importlib:import_module"),
        *("pygments.lexers:load_lexer_from_file", "numpy:load", "no_such_module:share"),
        *("t5x_like.core.whole_files:write", "t5x_like.cli.main:main", "t5x_like.tasks.text:text"),
        *("t5x_like.tasks.inverse:pairs", "t5x_like.evaluation.task_metrics:measure"),
        *("t5x_like.evaluation.task_metrics:exact_match.__globals__", "users_metrics:gone"),
    ],
)
def test_a_function_that_nobody_lists_is_not_found(
    address: str, module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("pygments.lexers")
    user_modules.import_module("users_metrics")
    imported = {*sys.modules}
    call = {"name": address, "args": ["x"], "kwargs": {}}
    for names in (MetricNames(metric_fns=(call,)), MetricNames((), call)):
        found, postprocess_fn, _ = names.functions()
        assert (found, postprocess_fn) == ([], None)
    added = {name for name in {*sys.modules} - imported if not name.startswith("t5x_like.")}
    assert not added


def test_metrics_of_this_package_are_found_by_their_lists() -> None:
    for address in ("evaluation.task_metrics:exact_match", "tasks.inverse:solved"):
        call = {"name": f"t5x_like.{address}", "args": [], "kwargs": {}}
        (found,), _, missing = MetricNames(metric_fns=(call,)).functions()
        assert (found.__name__, missing) == (address.partition(":")[2], [])


@pytest.mark.parametrize(
    "change",
    [
        *({"metric_fns": [7]}, {"metric_fns": [{"name": 7, "args": [], "kwargs": {}}]}),
        *({"postprocess_fn": "os:system"}, {"unnamed": "abc"}, {"more": 1}, {"metric_fns": None}),
    ],
)
def test_fields_of_other_types_are_refused(change: dict[str, Any]) -> None:
    fields = {"metric_fns": [], "postprocess_fn": None, "unnamed": [], **change}
    with pytest.raises(ValueError, match="record: its metrics"):
        MetricNames.from_json(fields, "record")

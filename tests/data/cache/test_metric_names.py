"""Names of metric functions: found again where their modules are imported, and nowhere else."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import types
from collections.abc import Iterator

import pytest

from t5x_like.data.cache.metric_names import MetricNames

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
def module() -> Iterator[types.ModuleType]:
    found = types.ModuleType("users_metrics")
    exec(SOURCE, vars(found))
    sys.modules["users_metrics"] = found
    yield found
    sys.modules.pop("users_metrics", None)


def through_json(names: MetricNames) -> MetricNames:
    return MetricNames.from_json(json.loads(json.dumps(dataclasses.asdict(names))))


def test_functions_are_found_with_their_bound_arguments(module: types.ModuleType) -> None:
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


def test_a_record_imports_no_module_that_nobody_has_named(module: types.ModuleType) -> None:
    names = through_json(MetricNames.of([module.share], module.word))
    del sys.modules["users_metrics"]
    functions, _, missing = names.functions()
    assert functions == []
    assert missing == ["share (postprocess_fn: add --module users_metrics, if you trust it)"]
    sys.modules["users_metrics"] = module
    for address in ("os:system", "os:popen", "subprocess:Popen", "users_metrics:gone"):
        call = {"name": address, "args": [], "kwargs": {}}
        assert MetricNames(metric_fns=(call,)).functions()[0] == []

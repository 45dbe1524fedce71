"""Records of cached tasks, with names of classes and functions of everybody."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
from pathlib import Path

from hypothesis import strategies as st
from mutations import of_json, of_value, one_of

from t5x_like import objectives
from t5x_like.data.cache.records.metric_names import MetricNames
from t5x_like.data.task import Task
from t5x_like.data.task_files import task_records
from t5x_like.evaluation.task_metrics import exact_match

PRESETS = ("span_corruption", "bart", "ul2", "albert", "bert_style", "mlm_nsp", "spanbert", "xlnet")
OTHERS = ("etils.epy.lazy_imports_utils", "pygments.lexers", "t5x_like.data.dataset")
"""Modules that commands import, too."""


def make(folder):
    for name in PRESETS:
        (folder / name).mkdir()
        task = Task(
            name=name,
            directory="tokens/a",
            objective=objectives.preset(name),
            steps=("trim",),
            eos={"targets": 1},
            metrics=MetricNames.of([exact_match], exact_match),
        )
        task_records.save(folder / name / "task.json", [task, dataclasses.replace(task, weight=2)])


def read(folder):
    before = {*sys.modules}
    try:
        for task in task_records.load(folder / "task.json"):
            functions, postprocess_fn, _ = (
                task.metrics.functions() if task.metrics else ((), None, 0)
            )
            for one in (*functions, *filter(None, [postprocess_fn])):
                inner = getattr(one, "func", one)
                assert inner.__module__.startswith(("t5x_like.evaluation", "t5x_like.tasks")), inner
            made = type(task.objective).__module__
            assert task.objective is None or made.startswith("t5x_like.objectives."), made
    finally:
        added = {name for name in {*sys.modules} - before if not name.startswith("t5x_like.")}
        assert not added, added


def damage(draw, files):
    if draw(st.integers(0, 3)) == 0:
        return one_of(draw, files, of_json, [*files])
    rows = json.loads(files["task.json"])
    if draw(st.booleans()):
        rows = of_value(draw, rows)
    for node, name in [*_names([rows])]:
        if draw(st.booleans()):
            node[name] = draw(st.sampled_from(_addresses()))
            if name == "class" and draw(st.booleans()):
                node["fields"] = {draw(st.sampled_from(["module_name", "path"])): "this"}
    return {"task.json": json.dumps(rows).encode()}


def _names(node):
    """The containers and keys of all names of classes and functions."""
    for name, value in [*node.items()] if isinstance(node, dict) else [*enumerate(node)]:
        if name in ("class", "name") and isinstance(value, str) and ":" in value:
            yield node, name
        if isinstance(value, dict | list):
            yield from _names(value)


def _addresses(found=[]):  # noqa: B006 (computed once)
    """Classes and functions of modules that a command has imported, and of others."""
    if not found:
        for module in (*OTHERS, "os", "subprocess", "shutil", "numpy", "t5x_like.core.whole_files"):
            for name, value in vars(importlib.import_module(module)).items():
                if inspect.isfunction(value) or isinstance(value, type):
                    found.append(f"{module}:{name}")
        found += [
            "this:x",
            f"{Path(__file__).stem}:read",
            "t5x_like.objectives.mlm:np",
            ":",
            "a:b:c",
        ]
    return found


def test_damaged_records(fuzz):
    fuzz(__file__, damage)

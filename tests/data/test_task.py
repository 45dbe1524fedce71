"""Corpora become tasks; user modules are imported once; rates become exact integers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5x_like.data import task, user_modules
from t5x_like.data.corpora.rates import integer_weights
from t5x_like.objectives.span_corruption import SpanCorruption
from t5x_like.objectives.supervised.text_to_text import TextToText
from t5x_like.vocabularies.byte import ByteVocabulary
from t5x_like.vocabularies.passthrough import PassThroughVocabulary


class Unfinished(SpanCorruption):
    """An objective whose examples have no end of sequence."""

    steps = ("trim",)


def test_an_objective_reads_the_columns_of_its_corpus(make_corpus: Callable) -> None:
    plain = make_corpus(["text"])
    pairs = make_corpus([{"inputs": "a", "targets": "b"}])
    assert task.of_corpus(plain, SpanCorruption()).objective == SpanCorruption()
    assert task.of_corpus(pairs, TextToText()).objective == TextToText()
    with pytest.raises(
        ValueError, match="is rows with inputs and targets, but SpanCorruption reads plain text"
    ):
        task.of_corpus(pairs, SpanCorruption())
    with pytest.raises(ValueError, match="'memory' is plain text, but TextToText reads rows with"):
        task.of_corpus(plain, TextToText())
    with pytest.raises(
        ValueError, match=r"object has no kind, reads, answers, .*protocols\.Objective"
    ):
        task.of_corpus(plain, object())
    assert task.of_corpus(plain, SpanCorruption(), label="other").label == "other"


def test_end_of_sequence_is_appended_where_there_is_one(make_corpus: Callable) -> None:
    plain = task.of_corpus(make_corpus(["text"]), SpanCorruption())
    assert plain.with_directory(ByteVocabulary()).eos == {"inputs": 1, "targets": 1}
    assert plain.with_directory(PassThroughVocabulary(10, eos=None)).eos == {}
    table = task.of_corpus(make_corpus([{"inputs": "a", "targets": "b"}]), TextToText())
    assert table.steps == ("append_eos_after_trim",)
    assert table.with_directory(ByteVocabulary()).eos == {"inputs": 1, "targets": 1}
    without = task.of_corpus(make_corpus(["text"]), Unfinished())
    assert without.steps == ("trim",)
    assert without.with_directory(ByteVocabulary()).eos == {}


def test_file_is_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "imported_by_path.py"
    path.write_text("import sys; sys.counted = getattr(sys, 'counted', 0) + 1")
    monkeypatch.setattr(sys, "counted", 0, raising=False)
    for _ in range(2):
        user_modules.import_module(str(path))
    assert sys.counted == 1
    assert sys.modules.pop("imported_by_path").__file__ == str(path)


def test_file_that_failed_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "imported_twice.py"
    path.write_text("registered = {}['missing']")
    for _ in range(2):
        with pytest.raises(KeyError, match="missing"):
            user_modules.import_module(str(path))


def test_file_may_not_hide_behind_an_imported_module(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("")
    with pytest.raises(ValueError, match="module 'json' already; give the file another name"):
        user_modules.import_module(str(tmp_path / "json.py"))


def test_module_by_its_dotted_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dotted_module.py").write_text("value = 3")
    monkeypatch.syspath_prepend(str(tmp_path))
    user_modules.import_module("dotted_module")
    assert sys.modules.pop("dotted_module").value == 3
    with pytest.raises(ValueError, match="MIXTURE_OR_TASK_MODULE='no_such_module'"):
        user_modules.import_module("no_such_module")


def test_module_registers_its_tasks_each_time_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "registers_later.py"
    path.write_text("calls = []\ndef register_tasks():\n    calls.append(1)\n")
    for _ in range(2):
        user_modules.import_module(str(path))
    assert sys.modules.pop("registers_later").calls == [1, 1]


@pytest.mark.parametrize(
    ("rates", "weights"),
    [
        ({"a": 1}, {"a": 1}),
        ({"a": 0.1, "b": 0.2}, {"a": 1, "b": 2}),
        ({"a": 1 / 3, "b": 2 / 3}, {"a": 1, "b": 2}),
        ({"a": 1.5, "b": 1, "c": 0}, {"a": 3, "b": 2, "c": 0}),
        ({"a": 4000, "b": 6000}, {"a": 2, "b": 3}),
    ],
)
def test_rates_become_the_smallest_integers(rates: dict, weights: dict) -> None:
    assert integer_weights(rates) == weights


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5).filter(any), st.integers(1, 20))
def test_integer_rates_keep_their_proportion(rates: list[int], scale: int) -> None:
    named = {str(i): rate / scale for i, rate in enumerate(rates)}
    weights = list(integer_weights(named).values())
    for i, first in enumerate(rates):
        for j, second in enumerate(rates):
            assert weights[i] * second == weights[j] * first


@pytest.mark.parametrize("rates", [{"a": 0}, {"a": 1, "b": -1}])
def test_rates_that_mean_nothing(rates: dict) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        integer_weights(rates)

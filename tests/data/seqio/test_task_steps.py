"""The steps of a SeqIO task before and after its cache point."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import gin
import pytest
import seqio
import tensorflow as tf

from t5x_like.core.protocols import TokenIds
from t5x_like.data.seqio import task_steps
from t5x_like.data.seqio.objective_step import ObjectiveStep
from t5x_like.data.seqio.task_steps import PostCache, describe
from t5x_like.objectives.span_corruption import SpanCorruption

append_eos = seqio.preprocessors.append_eos
append_eos_after_trim = seqio.preprocessors.append_eos_after_trim
MARK = seqio.CacheDatasetPlaceholder()

# Steps in the form of a user's file.


@seqio.map_over_dataset
def upper(example: dict) -> dict:
    return {**example, "inputs": example["inputs"] + 1}


@seqio.map_over_dataset(num_seeds=1)
def jitter(example: dict, seed: tf.Tensor) -> dict:
    return example


def cut(ds: tf.data.Dataset, sequence_length: dict) -> tf.data.Dataset:
    return ds


@dataclasses.dataclass
class Window:
    """A transform to which SeqIO passes the lengths as a field."""

    sequence_length: dict | None = None

    def __call__(self, ds: tf.data.Dataset) -> tf.data.Dataset:
        return ds


def gin_wrapped(function: Callable) -> Callable:
    return gin.external_configurable(function, name=f"test_{function.__name__}", module="tests")


OBJECTIVE = ObjectiveStep(SpanCorruption(), ids=TokenIds(300, sentinels=100), task="t")
FIXED_CUT = functools.partial(cut, sequence_length={"inputs": 4})


def make_task(steps: Sequence[Callable], **features: bool) -> seqio.Task:
    vocabulary = seqio.PassThroughVocabulary(300, eos_id=1)
    spec = {name: tf.TensorSpec([None], tf.int32) for name in ("inputs", "targets")}

    def read(split: str, shuffle_files: bool) -> tf.data.Dataset:
        rows = [{"inputs": [3, 4], "targets": [5]}]
        return tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=spec)

    return seqio.Task(
        "described",
        source=seqio.FunctionDataSource(read, ["train"]),
        preprocessors=steps,
        output_features={
            name: seqio.Feature(vocabulary, add_eos=features.get(name, True))
            for name in ("inputs", "targets")
        },
    )


@pytest.mark.parametrize(
    ("steps", "names", "refused", "cached"),
    [
        ([upper, MARK, append_eos], ["append_eos"], None, 1),
        ([MARK, append_eos_after_trim], ["append_eos_after_trim"], None, 0),
        ([upper, MARK], [], None, 1),
        ([upper, MARK, seqio.utils.trim_dataset, append_eos], ["trim", "append_eos"], None, 1),
        ([upper, MARK, functools.partial(append_eos)], ["append_eos"], None, 1),
        ([upper, MARK, append_eos, upper], ["append_eos"], "upper", 1),
        ([MARK, jitter, append_eos], [], "jitter", 0),
        ([MARK, cut], [], "cut", 0),
        ([MARK, FIXED_CUT], [], "cut", 0),
        ([MARK, Window()], [], "Window", 0),
        ([MARK, functools.partial(append_eos, output_features={})], [], "append_eos", 0),
        # Without a placeholder.
        ([], [], None, 0),
        ([upper], [], None, 1),
        ([upper, append_eos], ["append_eos"], None, 1),
        (
            [upper, append_eos, append_eos_after_trim],
            ["append_eos", "append_eos_after_trim"],
            None,
            1,
        ),
        ([append_eos, upper], [], None, 2),
        ([FIXED_CUT, append_eos], ["append_eos"], None, 1),
        ([upper, append_eos_after_trim, upper], ["append_eos_after_trim"], "upper", 1),
        ([upper, jitter, append_eos], [], "jitter", 1),
        ([cut, append_eos], [], "cut", 0),
        ([upper, Window(), append_eos], [], "Window", 1),
    ],
)
def test_describe(steps: Sequence[Callable], names: list[str], refused: str | None, cached: int):
    described = describe(make_task(steps))
    assert described.objective is None
    assert list(described.steps) == names
    assert (described.refused or "").rpartition(".")[2] == (refused or "")
    assert described.cached_steps == cached


def test_a_refused_step_is_named_with_its_module():
    assert describe(make_task([MARK, cut])).refused == f"{cut.__module__}.cut"


@pytest.mark.parametrize("mark", [[MARK], []])
def test_describe_finds_the_objective_where_it_comes_first(mark: list):
    described = describe(make_task([upper, *mark, OBJECTIVE, append_eos_after_trim]))
    assert described == PostCache(
        objective=SpanCorruption(),
        steps=("append_eos_after_trim",),
        refused=None,
        cached_steps=1,
        eos={"inputs": 1, "targets": 1},
    )
    late = describe(make_task([upper, MARK, append_eos, OBJECTIVE]))
    assert late.refused == "t5x_like.data.seqio.objective_step.ObjectiveStep"
    twice = describe(make_task([MARK, OBJECTIVE, OBJECTIVE]))
    assert twice.refused == "t5x_like.data.seqio.objective_step.ObjectiveStep"


def test_describe_sees_through_gin():
    assert describe(make_task([MARK, gin_wrapped(append_eos)])).steps == ("append_eos",)
    assert describe(make_task([MARK, gin_wrapped(cut)])).refused.endswith(".cut")


def test_eos_goes_where_the_task_wants_it():
    assert describe(make_task([append_eos], inputs=False)).eos == {"targets": 1}


@pytest.mark.parametrize("mark", [[MARK], []])
def test_what_precedes_the_cache(mark: list):
    task = make_task([upper, *mark, append_eos])
    ds = task_steps.before_cache(task, task.source.get_dataset("train", shuffle=False))
    (row,) = ds.as_numpy_iterator()
    assert {name: value.tolist() for name, value in row.items()} == {
        "inputs": [4, 5],
        "targets": [5],
    }

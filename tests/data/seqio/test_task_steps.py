"""The steps of a SeqIO task before and after its cache point."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import gin
import pytest
import seqio
import tensorflow as tf

from t5x_like.core.protocols.data import TokenIds
from t5x_like.data.seqio import task_steps
from t5x_like.data.seqio.objective_step import ObjectiveStep
from t5x_like.data.seqio.task_steps import PostCache, describe
from t5x_like.objectives.span_corruption import SpanCorruption
from t5x_like.objectives.supervised.text_to_text import TextToText

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
    ("steps", "names", "late", "cached"),
    [
        ([upper, MARK, append_eos], ["append_eos"], [], 1),
        ([MARK, append_eos_after_trim], ["append_eos_after_trim"], [], 0),
        ([upper, MARK], [], [], 1),
        ([upper, MARK, seqio.utils.trim_dataset, append_eos], ["trim", "append_eos"], [], 1),
        ([upper, MARK, functools.partial(append_eos)], ["append_eos"], [], 1),
        ([upper, MARK, append_eos, upper], [], ["append_eos", "upper"], 4),
        ([MARK, upper, append_eos], ["append_eos"], ["upper"], 2),
        ([MARK, functools.partial(append_eos, output_features={})], [], ["append_eos"], 2),
        # Without a placeholder.
        ([], [], [], 0),
        ([upper], [], ["upper"], 1),
        ([upper, append_eos], ["append_eos"], ["upper"], 1),
        (
            [upper, append_eos, append_eos_after_trim],
            ["append_eos", "append_eos_after_trim"],
            ["upper"],
            1,
        ),
        ([append_eos, upper], [], ["append_eos", "upper"], 2),
        ([FIXED_CUT, append_eos], ["append_eos"], ["cut"], 1),
    ],
)
def test_describe(steps: Sequence[Callable], names: list[str], late: list[str], cached: int):
    described = describe(make_task(steps))
    assert described.objective == TextToText()
    assert described.refused is None
    assert list(described.steps) == names
    assert [name.rpartition(".")[2] for name in described.late] == late
    assert described.cached_steps == cached
    assert not described.needs_lengths


@pytest.mark.parametrize(
    ("steps", "names", "cached"),
    [
        ([upper, MARK, cut, append_eos], ["append_eos"], 3),
        ([MARK, FIXED_CUT, Window()], [], 3),
        ([upper, MARK, append_eos_after_trim, upper], [], 4),
        ([cut, append_eos], ["append_eos"], 1),
        ([upper, Window(), append_eos], ["append_eos"], 2),
        ([MARK, gin_wrapped(cut), append_eos], ["append_eos"], 2),
    ],
)
def test_a_late_step_may_depend_on_lengths(
    steps: Sequence[Callable], names: list[str], cached: int
):
    described = describe(make_task(steps))
    assert described.refused is None
    assert described.needs_lengths
    assert list(described.steps) == names
    assert described.cached_steps == cached


@pytest.mark.parametrize("mark", [[MARK], []])
@pytest.mark.parametrize("steps", [[jitter, append_eos], [append_eos, jitter], [OBJECTIVE, upper]])
def test_a_late_step_that_takes_seeds_is_refused(mark: list, steps: list):
    refused = describe(make_task([upper, *mark, *steps])).refused or ""
    drawing = (
        "objective_step.ObjectiveStep" if OBJECTIVE in steps else f"{jitter.__module__}.jitter"
    )
    assert refused.endswith(f"{drawing}, which draws random numbers anew in each epoch")


def noisy(ds: tf.data.Dataset) -> tf.data.Dataset:
    """A step whose signature says nothing of its seeds."""
    return jitter(ds)


def shaken(ds: tf.data.Dataset) -> tf.data.Dataset:
    return ds.map(lambda x: {**x, "targets": tf.random.shuffle(x["targets"])})


def sown(ds: tf.data.Dataset) -> tf.data.Dataset:
    return ds.map(lambda x: {**x, "draw": tf.random.stateless_uniform([], [1, 2])})


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([MARK, upper, noisy], "noisy"),
        ([upper, shaken, upper], "shaken"),
        ([shaken, MARK, upper], None),
        ([MARK, sown, append_eos], None),
        ([MARK, cut, append_eos], None),
    ],
)
def test_draws_within_a_late_step_are_found(steps: list, found: str | None):
    task = make_task(steps)
    ds = task.source.get_dataset("train", shuffle=False)
    drawing = task_steps.drawing_step(task, ds, lengths={"inputs": 4, "targets": 4})
    assert drawing == (found and f"{noisy.__module__}.{found}")


@pytest.mark.parametrize("mark", [[MARK], []])
def test_describe_finds_the_objective_before_the_last_steps(mark: list):
    described = describe(make_task([upper, *mark, OBJECTIVE, append_eos_after_trim]))
    assert described == PostCache(
        objective=SpanCorruption(),
        steps=("append_eos_after_trim",),
        refused=None,
        cached_steps=1,
        eos={"inputs": 1, "targets": 1},
        late=() if mark else (f"{noisy.__module__}.upper",),
    )
    after = describe(make_task([upper, *mark, append_eos, OBJECTIVE]))
    assert (after.objective, after.refused) == (SpanCorruption(), None)
    twice = describe(make_task([MARK, OBJECTIVE, OBJECTIVE]))
    assert twice.refused.startswith("t5x_like.data.seqio.objective_step.ObjectiveStep")


def test_describe_sees_through_gin():
    assert describe(make_task([MARK, gin_wrapped(append_eos)])).steps == ("append_eos",)


def test_eos_goes_where_the_task_wants_it():
    assert describe(make_task([append_eos], inputs=False)).eos == {"targets": 1}


left = seqio.preprocessors.truncate_inputs_left


@pytest.mark.parametrize(
    ("steps", "inputs"),
    [
        ([upper, MARK, append_eos], [4, 5]),
        ([upper, append_eos], [4, 5]),
        ([upper, MARK, left], [5]),
        ([upper, left, append_eos], [5]),
    ],
)
def test_what_runs_for_the_cache(steps: list, inputs: list[int]):
    task = make_task(steps)
    ds = task.source.get_dataset("train", shuffle=False)
    (row,) = task_steps.before_cache(task, ds, lengths={"inputs": 1}).as_numpy_iterator()
    assert {name: value.tolist() for name, value in row.items()} == {
        "inputs": inputs,
        "targets": [5],
    }

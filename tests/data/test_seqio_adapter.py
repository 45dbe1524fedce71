"""Our corpora and objectives as SeqIO tasks, and SeqIO's tasks read back."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import gin
import numpy as np
import pytest
import seqio
import tensorflow as tf

from t5x_like.data import seqio_adapter
from t5x_like.data.cache import Cache
from t5x_like.data.cache_writer import write_cache
from t5x_like.data.corpora import Corpus, ReadReport
from t5x_like.data.feature_converters import EncoderDecoder
from t5x_like.data.samples import make_samples
from t5x_like.data.seqio_adapter import ObjectiveStep, PostCache, describe
from t5x_like.data.stream import Component, train_stream
from t5x_like.objectives.geometry import PerRecord
from t5x_like.objectives.span_corruption import SpanCorruption, random_spans_lengths
from t5x_like.protocols import TokenIds
from t5x_like.vocabularies.byte import ByteVocabulary

LENGTHS = {"inputs": 64, "targets": 14}
VOCABULARY = ByteVocabulary(extra_ids=100)
append_eos = seqio.preprocessors.append_eos
append_eos_after_trim = seqio.preprocessors.append_eos_after_trim
MARK = seqio.CacheDatasetPlaceholder()


class Memory(Corpus):
    """A corpus in a list."""

    held_out = 0.0

    def __init__(self, name: str, documents: list[dict[str, str]]) -> None:
        self.name = name
        self._documents = documents

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(self._documents[0])

    def read(self, split: str, report: ReadReport) -> Iterator[dict[str, str]]:
        yield from self._documents

    def fingerprint(self) -> str:
        return self.name

    def description(self) -> str:
        return "in memory"


PLAIN = [{"targets": f"document {i}\n\n" + f"line {i} \n" * (i % 9)} for i in range(60)]
PLAIN.append({"targets": "longer than a piece of a document " * 300})
PAIRS = [{"inputs": "x" * (i * 7), "targets": f"é{'y' * i}"} for i in range(20)]


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})


def cached_rows(
    task: seqio.Task, corpus: Corpus, folder: Path, *, seed: int = 0
) -> Iterator[dict[str, np.ndarray]]:
    """What training reads: the task as `describe` puts it, over a cache, in the cache's order."""
    write_cache(folder, corpus, VOCABULARY, workers=1, progress=False)
    cache = Cache.open(folder)
    described = describe(task)
    assert described.refused is None
    shape = described.objective.geometry(LENGTHS) if described.objective else PerRecord()
    component = Component(
        name=task.name,
        samples=make_samples(shape, cache.split("train")),
        objective=described.objective,
        post_cache=described.steps,
        eos=described.eos,
        token_ids=cache.token_ids,
    )
    stream = train_stream(
        [component],
        lengths=LENGTHS,
        converter=EncoderDecoder(),
        batch_size=1,
        seed=seed,
        num_threads=0,
        shuffle=False,
    )
    return ({name: value[0] for name, value in batch.items()} for batch in stream)


def assert_task_reads_the_same(
    task: seqio.Task, rows: Iterator[dict[str, np.ndarray]], *, epochs: int = 1
) -> int:
    """SeqIO's own path and converter against `rows`; returns how many there were."""
    ds = task.get_dataset(LENGTHS, "train", shuffle=False, num_epochs=epochs)
    reference = list(seqio.EncDecFeatureConverter(pack=False)(ds, LENGTHS).as_numpy_iterator())
    for theirs, ours in zip(reference, rows, strict=False):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert ours[name].tolist() == value.tolist(), name
    return len(reference)


@pytest.mark.parametrize("objective", [SpanCorruption(), SpanCorruption(0.1, 2.0)])
def test_plain_text_reads_the_same_through_seqio_and_through_grain(
    objective: SpanCorruption, tmp_path: Path
):
    corpus = Memory("memory", PLAIN)
    task = seqio_adapter.register(corpus, VOCABULARY, objective=objective, name="a.b", seed=7)
    rows = cached_rows(task, corpus, tmp_path, seed=7)
    total = sum(len(document["targets"].encode()) for document in PLAIN)
    raw = objective.geometry(LENGTHS).length
    assert total % raw  # the last, shorter sample is among them
    assert assert_task_reads_the_same(task, rows) == -(-total // raw)


def test_whole_epochs_read_the_same(tmp_path: Path):
    corpus = Memory("memory", [{"targets": "ab" * 70}, {"targets": "c" * 70}])
    task = seqio_adapter.register(corpus, VOCABULARY, objective="span_corruption")
    assert assert_task_reads_the_same(task, cached_rows(task, corpus, tmp_path), epochs=3) == 9


def test_text_to_text_reads_the_same_through_seqio_and_through_grain(tmp_path: Path):
    corpus = Memory("pairs", PAIRS)
    task = seqio_adapter.register(corpus, VOCABULARY, objective=None)
    assert task.name == "pairs"
    assert max(len(document["inputs"]) for document in PAIRS) > LENGTHS["inputs"]
    assert assert_task_reads_the_same(task, cached_rows(task, corpus, tmp_path)) == len(PAIRS)


def test_seed_and_task_decide_the_noise():
    def rows(name: str, seed: int) -> list[list[int]]:
        task = seqio_adapter.register(
            Memory("memory", PLAIN), VOCABULARY, objective="span_corruption", name=name, seed=seed
        )
        ds = task.get_dataset(LENGTHS, "train", shuffle=False)
        return [example["inputs"].tolist() for example in ds.as_numpy_iterator()]

    first = rows("a", 0)
    assert first != rows("b", 0)
    assert first != rows("c", 1)
    seqio.TaskRegistry.remove("a")
    assert first == rows("a", 0)


def test_repeating_draws_new_noise():
    task = seqio_adapter.register(
        Memory("memory", [{"targets": "x" * 70}]), VOCABULARY, objective="span_corruption"
    )
    ds = task.get_dataset(LENGTHS, "train", shuffle=False, num_epochs=4)
    inputs = [tuple(example["inputs"].tolist()) for example in ds.as_numpy_iterator()]
    assert random_spans_lengths(64)[0] == 70
    assert len(set(inputs)) == 4


def test_registered_tasks_mix():
    for seed in (0, 1):
        seqio_adapter.register(
            Memory("memory", PLAIN),
            ByteVocabulary(extra_ids=100),
            objective="span_corruption",
            name=f"task{seed}",
            seed=seed,
        )
    mixture = seqio.Mixture("mixed", [("task0", 1), ("task1", 3)])
    ds = mixture.get_dataset(LENGTHS, "train", shuffle=False, seed=0)
    rows = list(ds.take(40).as_numpy_iterator())
    assert all(len(row["inputs"]) <= 64 and row["inputs"][-1] == 1 for row in rows)
    assert len({tuple(row["inputs"].tolist()) for row in rows}) > 20


def test_names_of_registered_tasks():
    corpus = Memory("memory", PLAIN)
    register = functools.partial(seqio_adapter.register, corpus, VOCABULARY)
    assert register(objective="span_corruption").name == "memory.span_corruption"
    with pytest.raises(ValueError, match="duplicate"):
        register(objective=SpanCorruption())
    with pytest.raises(ValueError, match="pass a name"):
        register(objective=SpanCorruption(0.2))
    with pytest.raises(ValueError, match="nearest: span_corruption"):
        register(objective="span")
    with pytest.raises(ValueError, match=r"has targets: name an objective \(.*span_corruption"):
        register(objective=None)
    with pytest.raises(ValueError, match="has inputs and targets: it takes no objective"):
        seqio_adapter.register(Memory("p", PAIRS), VOCABULARY, objective="span_corruption")


def test_lengths_are_needed_and_checked():
    task = seqio_adapter.register(Memory("memory", PLAIN), VOCABULARY, objective="span_corruption")
    with pytest.raises(ValueError, match="pass sequence_length"):
        task.get_dataset(None, "train", shuffle=False)
    with pytest.raises(ValueError, match="set the targets length to 14"):
        task.get_dataset({"inputs": 64, "targets": 13}, "train", shuffle=False)


@dataclasses.dataclass(frozen=True)
class Reverse:
    """An objective of a user's own, on whole records."""

    def geometry(self, lengths: dict[str, int]) -> PerRecord:
        return PerRecord()

    def __call__(self, sample: dict, rng: np.random.Generator, ids: TokenIds) -> dict:
        return {"inputs": sample["inputs"], "targets": sample["inputs"][::-1]}


def test_an_objective_on_records_sees_each_alone():
    spec = {name: tf.TensorSpec([None], tf.int32) for name in ("inputs", "extra")}
    records = [{"inputs": [3, 4], "extra": [1]}, {"inputs": [], "extra": [2]}]
    ds = tf.data.Dataset.from_generator(lambda: iter(records), output_signature=spec)
    feature = seqio.Feature(seqio.PassThroughVocabulary(10))
    step = ObjectiveStep(Reverse(), ids=TokenIds(10), task="t")
    out = step(ds, LENGTHS, {"inputs": feature, "targets": feature})
    assert [{k: v.tolist() for k, v in row.items()} for row in out.as_numpy_iterator()] == [
        {"inputs": [3, 4], "targets": [4, 3]},
        {"inputs": [], "targets": []},
    ]


def test_a_geometry_of_another_kind_is_refused():
    ds = tf.data.Dataset.from_tensors({"targets": [1]})
    with pytest.raises(ValueError, match="cannot be cut from a SeqIO dataset"):
        seqio_adapter.gather(ds, SimpleNamespace(), names=["targets"])


# Steps as a user's file holds them.


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
    """A transform that SeqIO hands the lengths as a field."""

    sequence_length: dict | None = None

    def __call__(self, ds: tf.data.Dataset) -> tf.data.Dataset:
        return ds


def gin_wrapped(function: Callable) -> Callable:
    return gin.external_configurable(function, name=f"test_{function.__name__}", module="tests")


OBJECTIVE = ObjectiveStep(SpanCorruption(), ids=TokenIds(300), task="t")
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
    assert late.refused == "t5x_like.data.seqio_adapter.ObjectiveStep"
    twice = describe(make_task([MARK, OBJECTIVE, OBJECTIVE]))
    assert twice.refused == "t5x_like.data.seqio_adapter.ObjectiveStep"


def test_describe_sees_through_gin():
    assert describe(make_task([MARK, gin_wrapped(append_eos)])).steps == ("append_eos",)
    assert describe(make_task([MARK, gin_wrapped(cut)])).refused.endswith(".cut")


def test_eos_goes_where_the_task_wants_it():
    assert describe(make_task([append_eos], inputs=False)).eos == {"targets": 1}


@pytest.mark.parametrize("mark", [[MARK], []])
def test_what_precedes_the_cache(mark: list):
    task = make_task([upper, *mark, append_eos])
    ds = seqio_adapter.before_cache(task, task.source.get_dataset("train", shuffle=False))
    (row,) = ds.as_numpy_iterator()
    assert {name: value.tolist() for name, value in row.items()} == {
        "inputs": [4, 5],
        "targets": [5],
    }

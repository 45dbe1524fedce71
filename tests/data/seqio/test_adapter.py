"""Our corpora and objectives as SeqIO tasks, and SeqIO's tasks read back."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import seqio
import tensorflow as tf

from t5x_like.core.protocols.data import Column, TokenIds
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.corpora.corpus import Corpus, ReadReport
from t5x_like.data.rows.feature_converters import EncoderDecoder
from t5x_like.data.seqio import adapter
from t5x_like.data.seqio.objective_step import ObjectiveStep
from t5x_like.data.seqio.task_steps import describe
from t5x_like.data.streams import mixtures
from t5x_like.data.streams.stream import train_stream
from t5x_like.data.task import Task
from t5x_like.objectives.parts import formats
from t5x_like.objectives.parts.geometry import PerRecord
from t5x_like.objectives.span_corruption import SpanCorruption, random_spans_lengths
from t5x_like.vocabularies.byte import ByteVocabulary

LENGTHS = {"inputs": 64, "targets": 14}
VOCABULARY = ByteVocabulary(extra_ids=100)


class Memory(Corpus):
    """A corpus in a list."""

    held_out = 0.0

    def __init__(self, name: str, documents: list[dict[str, str]]) -> None:
        self.name = name
        self._documents = documents

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(map(Column, self._documents[0]))

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
    """The rows that training reads: the task of `describe`, on a cache, in the cache's order."""
    write_cache(folder, corpus, VOCABULARY, workers=1, progress=False)
    cache = Cache.open(folder)
    described = describe(task)
    assert described.refused is None
    opened = Task(
        name=task.name,
        objective=described.objective,
        steps=described.steps,
        eos=described.eos,
        cache=cache,
        lengths=LENGTHS,
    )
    examples = mixtures.examples([opened], "train", converter=EncoderDecoder(), seed=seed)
    stream = train_stream(examples, batch_size=1, num_threads=0, shuffle=False)
    return ({name: value[0] for name, value in batch.items()} for batch in stream)


def assert_task_reads_the_same(
    task: seqio.Task, rows: Iterator[dict[str, np.ndarray]], *, epochs: int = 1
) -> int:
    """Compares SeqIO's own path and converter with `rows`, and returns the number of rows."""
    ds = task.get_dataset(LENGTHS, "train", shuffle=False, num_epochs=epochs)
    reference = list(seqio.EncDecFeatureConverter(pack=False)(ds, LENGTHS).as_numpy_iterator())
    for theirs, ours in zip(reference, rows, strict=False):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert ours[name].tolist() == value.tolist(), name
    return len(reference)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [SpanCorruption(), SpanCorruption(0.1, 2.0)])
def test_plain_text_reads_the_same_through_seqio_and_through_grain(
    objective: SpanCorruption, tmp_path: Path
):
    corpus = Memory("memory", PLAIN)
    task = adapter.register(corpus, VOCABULARY, objective=objective, name="a.b", seed=7)
    rows = cached_rows(task, corpus, tmp_path, seed=7)
    total = sum(len(document["targets"].encode()) for document in PLAIN)
    raw = objective.geometry(LENGTHS).length
    assert total % raw  # the last, shorter sample is among them
    assert assert_task_reads_the_same(task, rows) == -(-total // raw)


def test_whole_epochs_read_the_same(tmp_path: Path):
    corpus = Memory("memory", [{"targets": "ab" * 70}, {"targets": "c" * 70}])
    task = adapter.register(corpus, VOCABULARY, objective="span_corruption")
    assert assert_task_reads_the_same(task, cached_rows(task, corpus, tmp_path), epochs=3) == 9


def test_text_to_text_reads_the_same_through_seqio_and_through_grain(tmp_path: Path):
    corpus = Memory("pairs", PAIRS)
    task = adapter.register(corpus, VOCABULARY, objective="text_to_text")
    assert task.name == "pairs"
    assert max(len(document["inputs"]) for document in PAIRS) > LENGTHS["inputs"]
    assert assert_task_reads_the_same(task, cached_rows(task, corpus, tmp_path)) == len(PAIRS)


def test_seed_and_task_decide_the_noise():
    def rows(name: str, seed: int) -> list[list[int]]:
        task = adapter.register(
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
    task = adapter.register(
        Memory("memory", [{"targets": "x" * 70}]), VOCABULARY, objective="span_corruption"
    )
    ds = task.get_dataset(LENGTHS, "train", shuffle=False, num_epochs=4)
    inputs = [tuple(example["inputs"].tolist()) for example in ds.as_numpy_iterator()]
    assert random_spans_lengths(64)[0] == 70
    assert len(set(inputs)) == 4


def test_registered_tasks_mix():
    for seed in (0, 1):
        adapter.register(
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
    register = functools.partial(adapter.register, corpus, VOCABULARY)
    assert register(objective="span_corruption").name == "memory.span_corruption"
    with pytest.raises(ValueError, match="duplicate"):
        register(objective=SpanCorruption())
    with pytest.raises(ValueError, match="pass a name"):
        register(objective=SpanCorruption(0.2))
    with pytest.raises(ValueError, match="nearest: spans, spanbert"):
        register(objective="span")
    with pytest.raises(ValueError, match="is plain text, but TextToText reads rows with inputs"):
        register(objective="text_to_text")
    with pytest.raises(ValueError, match="is rows with inputs and targets, but SpanCorruption"):
        adapter.register(Memory("p", PAIRS), VOCABULARY, objective="span_corruption")


def test_lengths_are_needed_and_checked():
    task = adapter.register(Memory("memory", PLAIN), VOCABULARY, objective="span_corruption")
    with pytest.raises(ValueError, match="pass sequence_length"):
        task.get_dataset(None, "train", shuffle=False)
    with pytest.raises(ValueError, match="set the targets length to 14"):
        task.get_dataset({"inputs": 64, "targets": 13}, "train", shuffle=False)


@dataclasses.dataclass(frozen=True)
class Reverse(formats.InputsAndTargets):
    """A user's objective, on whole records."""

    def lengths(self, tokens: int) -> dict[str, int]:
        return {"inputs": tokens, "targets": tokens}

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

"""Every objective gives the same features through SeqIO as from a cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seqio
import tensorflow as tf

from t5x_like import objectives
from t5x_like.core.protocols.data import TokenIds, Vocabulary
from t5x_like.data.cache.reader import Cache
from t5x_like.data.cache.writer import write_cache
from t5x_like.data.rows.feature_converters import default_converter
from t5x_like.data.samples.samples import make_samples
from t5x_like.data.seqio import adapter
from t5x_like.data.seqio.objective_step import ObjectiveStep
from t5x_like.data.seqio.task_cache import write_cache_from_task
from t5x_like.data.seqio.task_steps import describe
from t5x_like.data.streams import mixtures
from t5x_like.data.task import Task
from t5x_like.objectives.mlm import MaskedLM
from t5x_like.objectives.span_corruption import SpanCorruption
from t5x_like.vocabularies.learning.sentencepiece_training import train_sentencepiece
from t5x_like.vocabularies.sentencepiece import SentencePieceVocabulary
from tests.data.conftest import MemoryCorpus

TOKENS = 64
ROWS = 4


def documents(count: int = 40) -> list[str]:
    """Lines of made-up words, some with a full stop at the end; one document is the longest."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("aeioulmnrst"), rng.integers(1, 7))) for _ in range(150)]
    found = []
    for i in range(count):
        lines = 1 + (60 if i == 7 else int(rng.integers(0, 9)))
        text = ""
        for _ in range(lines):
            text += " ".join(rng.choice(words, rng.integers(1, 14))) + rng.choice([".\n", "\n"])
        found.append(text)
    return found


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    file = tmp_path_factory.mktemp("vocabulary") / "v.model"
    train_sentencepiece(documents(), file, vocab_size=150, progress=False)
    return SentencePieceVocabulary(file)


@pytest.fixture(scope="module")
def cache(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Cache:
    folder = tmp_path_factory.mktemp("cache") / "memory"
    write_cache(
        folder, MemoryCorpus(documents(), documents(1)), vocabulary, workers=1, progress=False
    )
    return Cache.open(folder)


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})


@pytest.mark.slow
@pytest.mark.parametrize("name", objectives.of_plain_text())
def test_features_are_the_same_through_seqio_and_through_grain(
    name: str, vocabulary: Vocabulary, cache: Cache
):
    corpus = MemoryCorpus(documents(), documents(1))
    task = adapter.register(
        corpus, vocabulary, objective=name, seed=3, token_ids=cache.token_ids, rows=ROWS
    )
    objective = objectives.preset(name)
    lengths = objective.lengths(TOKENS)
    described = describe(task)
    assert described.objective == objective
    opened = Task(
        name=task.name,
        objective=objective,
        steps=described.steps,
        eos=described.eos,
        cache=cache,
        lengths=lengths,
    )
    (ours,) = mixtures.examples(
        [opened], "train", converter=default_converter(objective), seed=3, rows=ROWS
    )
    theirs = list(task.get_dataset(lengths, "train", shuffle=False).as_numpy_iterator())
    assert len(theirs) == len(ours) > 4
    for n, features in enumerate(theirs):
        (mine,) = ours.features(n)
        assert mine.keys() == features.keys() == opened.features.keys()
        for feature, value in features.items():
            assert mine[feature].dtype == value.dtype, feature
            assert mine[feature].tolist() == value.tolist(), (n, feature)


def test_all_objectives_are_registered_at_once(vocabulary: Vocabulary, cache: Cache):
    tasks = adapter.register_all(
        MemoryCorpus(documents(), documents(1)), vocabulary, token_ids=cache.token_ids, rows=ROWS
    )
    assert {task.name for task in tasks} == {
        f"memory.{name}" for name in objectives.of_plain_text()
    }
    seqio.TaskRegistry._REGISTRY.clear()
    few = adapter.register_all(MemoryCorpus(documents(), documents(1)), vocabulary)
    assert {"memory.mlm", "memory.ul2"} < {task.name for task in few}
    assert "memory.distilbert" not in {task.name for task in few}, "it needs counts"


def test_what_the_vocabulary_lacks_is_named():
    with pytest.raises(ValueError, match=r"needs cls, sep, mask"):
        ObjectiveStep(MaskedLM(), ids=TokenIds(100), task="t")
    with pytest.raises(ValueError, match=r"needs sentinels"):
        ObjectiveStep(SpanCorruption(), ids=TokenIds(100), task="t")


def test_plans_need_text_that_ends(vocabulary: Vocabulary, cache: Cache):
    task = adapter.register(
        MemoryCorpus(documents(), documents(1)), vocabulary, objective="mlm_nsp"
    )
    with pytest.raises(ValueError, match="num_epochs"):
        task.get_dataset({"inputs": 32}, "train", shuffle=False, num_epochs=None)


def test_features_must_be_the_objective_s():
    step = ObjectiveStep(SpanCorruption(), ids=TokenIds(100, sentinels=100), task="t")
    ds = tf.data.Dataset.from_tensors({"targets": [1]})
    feature = seqio.Feature(seqio.PassThroughVocabulary(10))
    with pytest.raises(ValueError, match="makes no feature labels"):
        step(ds, SpanCorruption().lengths(32), {"labels": feature})


@pytest.mark.parametrize("name", ["mlm_nsp", "full_sentences", "spanbert"])
def test_a_cached_seqio_task_keeps_its_segments(
    name: str, vocabulary: Vocabulary, cache: Cache, tmp_path: Path
):
    corpus = MemoryCorpus(documents(), documents(1))
    task = adapter.register(corpus, vocabulary, objective=name, token_ids=cache.token_ids)
    write_cache_from_task(tmp_path / "task", task, vocabulary, progress=False)
    shape = objectives.preset(name).geometry({"inputs": TOKENS})
    ours = make_samples(shape, cache.split("train"))
    theirs = make_samples(shape, Cache.open(tmp_path / "task").split("train"))
    assert len(ours) == len(theirs) > 4
    for i in range(len(ours)):
        for feature, value in ours[i][0].items():
            assert value.tolist() == theirs[i][0][feature].tolist(), feature

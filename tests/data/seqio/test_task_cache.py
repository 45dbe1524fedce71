"""Caches of SeqIO tasks: up to the cache point, in processes, or run to the end."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import seqio
import tensorflow as tf

from t5x_like.data import user_modules
from t5x_like.data.cache.format import CacheError
from t5x_like.data.cache.reader import Cache
from t5x_like.data.seqio import task_cache
from t5x_like.data.seqio.task_cache import ToTheEnd, task_fingerprint, write_cache_from_task
from t5x_like.vocabularies.byte import ByteVocabulary

VOCABULARY = ByteVocabulary()
FEATURE = seqio.Feature(seqio.ByteVocabulary(extra_ids=0))
FEATURES = {"inputs": FEATURE, "targets": FEATURE}


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Three files of pairs for training, and one held-out file."""
    for i, name in enumerate(["train-0", "train-1", "train-2", "valid"]):
        lines = [f"question {i}-{j}\tanswer {'x' * j}" for j in range(4 + i)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines))
    return {"train": str(tmp_path / "train-*.tsv"), "validation": str(tmp_path / "valid.tsv")}


def parse(ds: tf.data.Dataset) -> tf.data.Dataset:
    rows = ds.map(lambda line: tf.strings.split(line, "\t"))
    return rows.map(lambda row: {"inputs": row[0], "targets": row[1]})


def register(files: dict[str, str], *later, before=(), name="pairs", features=FEATURES):
    mark = [seqio.CacheDatasetPlaceholder()]
    return seqio.TaskRegistry.add(
        name,
        source=seqio.TextLineDataSource(files),
        preprocessors=[parse, *before, seqio.preprocessors.tokenize, *mark, *later],
        output_features=features,
    )


def write(directory: Path, task: seqio.Task, **options):
    return write_cache_from_task(directory, task, VOCABULARY, progress=False, **options)


def records(directory: Path, split: str = "train") -> list[dict[str, list[int]]]:
    opened = Cache.open(directory).split(split)
    return [
        {name: ids.tolist() for name, ids in opened.record(i).items()} for i in range(len(opened))
    ]


def reference(ds: tf.data.Dataset, names=("inputs", "targets")) -> list[dict[str, list[int]]]:
    return [{name: x[name].tolist() for name in names} for x in ds.as_numpy_iterator()]


@pytest.mark.slow
def test_cache_holds_what_precedes_the_placeholder(tmp_path, files):
    task = register(files, seqio.preprocessors.append_eos)
    manifest = write(tmp_path / "cache", task)
    assert manifest.features == {"inputs": "uint16", "targets": "uint16"}
    assert [len(info.shards) for info in manifest.splits.values()] == [3, 1]
    for split in ("train", "validation"):
        source = task.source.get_dataset(split, shuffle=False)
        expected = reference(task.preprocess_precache(source))
        assert len(expected) > 5
        assert records(tmp_path / "cache", split) == expected
    ids = Cache.open(tmp_path / "cache").token_ids
    targets = [i for record in records(tmp_path / "cache", "train") for i in record["targets"]]
    assert ids.counts.tolist() == np.bincount(targets, minlength=ids.vocab_size).tolist()


@pytest.mark.slow
def test_processes_change_no_byte(tmp_path, files):
    module = tmp_path / "registers_pairs.py"
    module.write_text(
        f"""
import seqio
import tensorflow as tf

def parse(ds):
    rows = ds.map(lambda line: tf.strings.split(line, "\\t"))
    return rows.map(lambda row: {{"inputs": row[0], "targets": row[1]}})

feature = seqio.Feature(seqio.ByteVocabulary(extra_ids=0))
seqio.TaskRegistry.add(
    "from_a_file",
    source=seqio.TextLineDataSource({files!r}),
    preprocessors=[parse, seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder()],
    output_features={{"inputs": feature, "targets": feature}},
)
"""
    )
    user_modules.import_module(str(module))
    task = seqio.TaskRegistry.get("from_a_file")
    write(tmp_path / "alone", task)
    write(tmp_path / "spread", task, module=str(module), workers=2)
    for path in (tmp_path / "alone").iterdir():
        if path.name != ".writing":
            assert path.read_bytes() == (tmp_path / "spread" / path.name).read_bytes(), path.name


def test_finished_shards_are_not_made_again(tmp_path, files, monkeypatch):
    task = register(files)
    expected = write(tmp_path / "whole", task)
    run = task_cache.ToCachePoint.run
    made: list[int] = []

    def run_until_killed(self, task, part):
        made.append(part.number)
        if made == [0, 0, 1]:  # the first looks at the features
            raise KeyboardInterrupt
        return run(self, task, part)

    monkeypatch.setattr(task_cache.ToCachePoint, "run", run_until_killed)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "cache", task)
    made.clear()
    assert write(tmp_path / "cache", task) == expected
    assert made == [0, 1, 2, 0]


def random_noise(ds: tf.data.Dataset) -> tf.data.Dataset:
    @seqio.map_over_dataset(num_seeds=1)
    def add(example, seed):
        noise = tf.random.stateless_uniform([3], seed, 10, 200, tf.int32)
        return {**example, "targets": tf.concat([example["targets"], noise], 0)}

    return add(ds)


@pytest.mark.slow
def test_a_task_is_run_to_its_end_once_an_epoch(tmp_path, files):
    task = register(files, random_noise, seqio.preprocessors.append_eos_after_trim)
    run = ToTheEnd({"inputs": 9, "targets": 12}, seed=5, epochs=3)
    manifest = write(tmp_path / "a", task, materialize=run)
    assert manifest.materialized == dataclasses.asdict(run)
    assert manifest.materialized_epochs == 3
    found = records(tmp_path / "a")
    assert len(found) == 3 * 15
    epochs = [found[:15], found[15:30], found[30:]]
    for epoch in epochs:
        assert all(len(r["inputs"]) == 9 and len(r["targets"]) <= 12 for r in epoch)
        assert all(r["targets"][-1] == 1 for r in epoch)
    inputs = [[r["inputs"] for r in epoch] for epoch in epochs]
    targets = [[r["targets"] for r in epoch] for epoch in epochs]
    assert inputs[0] == inputs[1] == inputs[2]
    assert targets[0] != targets[1] != targets[2] != targets[0]
    assert len(records(tmp_path / "a", "validation")) == 7
    assert write(tmp_path / "b", task, materialize=run).content_hash == manifest.content_hash
    with pytest.raises(CacheError, match="materialized as"):
        write(tmp_path / "a", task)


def test_loss_weights_are_kept(tmp_path, files):
    def weigh(ds):
        return ds.map(
            lambda x: {
                **x,
                "targets_loss_weights": tf.cast(tf.range(tf.size(x["targets"])), tf.float32) / 2,
            }
        )

    task = register(files)
    steps = [parse, seqio.preprocessors.tokenize, weigh, seqio.CacheDatasetPlaceholder()]
    task = seqio.TaskRegistry.add(
        "weighed", source=task.source, preprocessors=steps, output_features=FEATURES
    )
    manifest = write(tmp_path / "cache", task)
    assert manifest.features["targets_loss_weights"] == "float32"
    weights = records(tmp_path / "cache")[3]["targets_loss_weights"]
    assert weights == (np.arange(len("answer xxx")) / 2).tolist()


def test_features_that_cannot_be_cached_are_named(tmp_path, files):
    def no_tokens(ds):
        return ds.map(lambda x: {**x, "inputs": tf.constant("text")})

    source = seqio.TextLineDataSource(files)
    steps = [parse, seqio.preprocessors.tokenize, no_tokens, seqio.CacheDatasetPlaceholder()]
    task = seqio.TaskRegistry.add(
        "strings", source=source, preprocessors=steps, output_features=FEATURES
    )
    with pytest.raises(CacheError, match="'inputs' is string with 0 axes"):
        write(tmp_path / "cache", task)


def test_a_task_without_training_split_or_files_is_refused(tmp_path, files):
    only_test = {"test": files["validation"]}
    with pytest.raises(CacheError, match="no split 'train' or 'validation', only test"):
        write(tmp_path / "cache", register(only_test, name="tests"))
    nothing = {"train": str(tmp_path / "none-*.tsv")}
    with pytest.raises(CacheError, match="no files for split 'train'"):
        write(tmp_path / "cache", register(nothing, name="nothing"))


def shout(ds: tf.data.Dataset) -> tf.data.Dataset:
    return ds.map(lambda x: {**x, "inputs": tf.strings.upper(x["inputs"])})


class Unknown(seqio.ByteVocabulary):
    """A vocabulary without a counterpart among ours."""


@pytest.mark.parametrize("kind", [seqio.ByteVocabulary, Unknown])
def test_fingerprint_knows_vocabularies_by_their_ids(kind, files):
    def fingerprint(vocabulary: seqio.Vocabulary) -> str:
        seqio.TaskRegistry.reset()
        feature = seqio.Feature(vocabulary)
        return task_fingerprint(register(files, features={"inputs": feature, "targets": feature}))

    kept = kind(extra_ids=0)  # so that the other one has another address
    assert fingerprint(kept) == fingerprint(kind(extra_ids=0))
    assert fingerprint(kept) != fingerprint(kind(extra_ids=100))


def test_fingerprint_of_a_model_file_is_its_content(tmp_path, files):
    texts = {"one": "a file of text about one thing " * 20, "two": "quite another story " * 20}
    for name, text in texts.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([text]),
            model_writer=model,
            vocab_size=18,
            hard_vocab_limit=False,
        )
        for folder in ("a", "b"):
            path = tmp_path / folder / f"{name}.model"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(model.getvalue())

    def known(path: str, **options) -> str:
        return task_cache.ids_fingerprint(
            seqio.SentencePieceVocabulary(str(tmp_path / path), extra_ids=4, **options)
        )

    for options in ({}, {"reverse_extra_ids": False}):
        assert known("a/one.model", **options) == known("b/one.model", **options)
        assert known("a/one.model", **options) != known("a/two.model", **options)


def test_fingerprint_follows_files_and_cached_steps_alone(tmp_path, files):
    def fingerprint(*later, before=()) -> str:
        seqio.TaskRegistry.reset()
        return task_fingerprint(register(files, *later, before=before))

    first = fingerprint()
    assert fingerprint() == first
    assert fingerprint(seqio.preprocessors.append_eos) == first
    assert fingerprint(before=[shout]) != first
    with (tmp_path / "train-1.tsv").open("a") as file:
        file.write("\none more\tpair")
    assert fingerprint() != first

"""Every source, vocabulary, feature and provider of SeqIO makes a cache that trains."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import seqio
import tensorflow as tf

from t5x_like.data.cache.reader import Cache
from t5x_like.data.dataset import Data

BYTES = seqio.ByteVocabulary(extra_ids=0)
TEXTS = [f"text number {n}, of some words" for n in range(6)]


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})
    monkeypatch.setattr(seqio.MixtureRegistry, "_REGISTRY", {})
    yield
    seqio.set_global_cache_dirs([])


def lines(path: Path) -> str:
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return str(path)


def examples(path: Path) -> str:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for text in TEXTS:
            feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
            features = tf.train.Features(feature={"text": feature})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return str(path)


def given(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices({"text": TEXTS})


TEXT_FEATURE = {"text": tf.io.FixedLenFeature([], tf.string)}


def parsed(proto: tf.Tensor) -> dict[str, tf.Tensor]:
    return tf.io.parse_single_example(proto, TEXT_FEATURE)


def sources(folder: Path) -> dict[str, seqio.DataSource]:
    text, records = lines(folder / "text.txt"), examples(folder / "records")
    both = lambda path: {"train": path, "validation": path}  # noqa: E731
    return {
        "function": seqio.FunctionDataSource(given, splits=["train", "validation"]),
        "file": seqio.FileDataSource(tf.data.TextLineDataset, both(text)),
        "text_line": seqio.TextLineDataSource(both(text)),
        "tf_example": seqio.TFExampleDataSource(both(records), TEXT_FEATURE),
        "proto": seqio.ProtoDataSource(both(records), decode_proto_fn=parsed),
    }


def as_targets(ds: tf.data.Dataset) -> tf.data.Dataset:
    def one(example):
        text = example["text"] if isinstance(example, dict) else example
        return {"inputs": text, "targets": text, "score": 0.5, "grid": [[1, 2], [3, 4]]}

    return ds.map(one)


def register(source: seqio.DataSource, vocabulary: seqio.Vocabulary, name="task", **more) -> str:
    feature = functools.partial(seqio.Feature, vocabulary, add_eos=vocabulary.eos_id is not None)
    seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[
            as_targets,
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={"inputs": feature(), "targets": feature(), **more},
    )
    return name


def opened(folder: Path, name: str):
    lengths = {"inputs": 48, "targets": 48}
    data = Data(mixture_or_task_name=name, lengths=lengths, cache_dir=str(folder / "cache"))
    return data.open()


def targets(cache: Cache, split: str = "train") -> list[list[int]]:
    records = cache.split(split)
    return [records.record(n)["targets"].tolist() for n in range(len(records))]


@pytest.mark.slow
def test_every_source(tmp_path: Path) -> None:
    """Two sources hold a class, whose methods must not be called."""
    known = {"DataSource", "DataSourceInterface", "TfdsDataSource"}  # abstract; test_tfds has it
    exported = {name for name in dir(seqio) if name.endswith(("DataSource", "DataSourceInterface"))}
    made = sources(tmp_path)
    assert exported - known == {type(source).__name__ for source in made.values()}
    for name, source in made.items():
        (task,) = opened(tmp_path, register(source, BYTES, name))
        cache = task.cache
        assert targets(cache) == [BYTES.encode(text) for text in TEXTS]
        # Its fingerprint holds no address, and so is the same in another process.
        assert task.has("train")


def vocabularies(folder: Path, model: Path) -> dict[str, seqio.Vocabulary]:
    # The words are whole, because SeqIO makes a matrix of a word in several pieces.
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        *"text number of some words ,".split(),
        *"0123456789",
    ]
    (folder / "vocab.txt").write_text("\n".join(words))
    return {
        "ByteVocabulary": BYTES,
        "SentencePieceVocabulary": seqio.SentencePieceVocabulary(str(model)),
        "BertWordPieceVocabulary": seqio.BertWordPieceVocabulary(
            str(folder / "vocab.txt"),
            start_of_sequence_id=2,
            end_of_sequence_id=3,
        ),
        "UnigramVocabulary": seqio.UnigramVocabulary([*TEXTS, "x"]),
        "FullCodepointVocabulary": seqio.vocabularies.FullCodepointVocabulary(),
        "PartialCodepointVocabulary": seqio.vocabularies.PartialCodepointVocabulary(
            [ord(c) for c in "abcdefghijklmnopqrstuvwxyz ,0123456789"]
        ),
    }


@pytest.mark.slow
def test_every_vocabulary(tmp_path: Path, model_file: Path) -> None:
    made = vocabularies(tmp_path, model_file)
    exported = {
        name
        for name in dir(seqio.vocabularies)
        if name.endswith("Vocabulary") and name not in ("Vocabulary", "PassThroughVocabulary")
    }
    assert exported == {*made}
    source = sources(tmp_path)["text_line"]
    for name, vocabulary in made.items():
        cache = opened(tmp_path, register(source, vocabulary, name))[0].cache
        expected = [
            np.asarray(vocabulary.encode_tf(tf.constant(text))).reshape(-1).tolist()
            for text in TEXTS
        ]
        assert targets(cache) == expected, name
        json.dumps(cache.manifest.to_json())


def test_features_that_no_row_has_are_left_out(tmp_path: Path, capsys) -> None:
    """T5X drops features that its converter does not know; this package once refused the task."""
    score = seqio.ContinuousFeature(dtype=tf.float32, rank=0)
    grid = seqio.Feature(seqio.PassThroughVocabulary(9), rank=2, add_eos=False)
    name = register(sources(tmp_path)["text_line"], BYTES, score=score, grid=grid)
    cache = opened(tmp_path, name)[0].cache
    assert [*cache.manifest.features] == ["inputs", "targets"]
    assert "feature 'score', float32 with 0 axes, is left out" in capsys.readouterr().err


def test_a_mixture_with_a_task_that_is_only_evaluated(tmp_path: Path) -> None:
    text = lines(tmp_path / "lines.txt")
    register(seqio.TextLineDataSource({"train": text, "validation": text}), BYTES, "both")
    register(seqio.TextLineDataSource({"validation": text}), BYTES, "eval_only")
    seqio.MixtureRegistry.add("mixture", ["both", "eval_only"], default_rate=1)
    found = opened(tmp_path, "mixture")
    assert [one.name for one in found if one.has("train")] == ["both"]
    assert [one.name for one in found if one.has("validation")] == ["both", "eval_only"]
    # With the record, SeqIO need not know the task.
    again = opened(tmp_path, "mixture")
    assert [one.name for one in again if one.has("validation")] == ["both", "eval_only"]


def test_a_cache_that_seqio_made_is_read(tmp_path: Path) -> None:
    """A cache in the form of `seqio_cache_tasks`: TFRecords beside two files of JSON."""
    folder = tmp_path / "offline" / "task"
    folder.mkdir(parents=True)
    seqio.set_global_cache_dirs([str(tmp_path / "offline")])
    shown = [f"offline {text}" for text in TEXTS]
    features = {n: {"dtype": "int32", "shape": [None]} for n in ("inputs", "targets")}
    for split in ("train", "validation"):
        (folder / f"info.{split}.json").write_text(
            json.dumps({"num_shards": 2, "features": features, "seqio_version": "0.0.20"})
        )
        (folder / f"stats.{split}.json").write_text(json.dumps({"examples": len(shown)}))
        for shard in range(2):
            name = f"{split}.tfrecord-{shard:05}-of-00002"
            with tf.io.TFRecordWriter(str(folder / name)) as writer:
                for text in shown[shard * 3 : shard * 3 + 3]:
                    ids = tf.train.Feature(int64_list=tf.train.Int64List(value=BYTES.encode(text)))
                    made = tf.train.Features(feature={"inputs": ids, "targets": ids})
                    writer.write(tf.train.Example(features=made).SerializeToString())
    (folder / "COMPLETED").write_text("")
    missing = {split: str(tmp_path / "gone.txt") for split in ("train", "validation")}
    register(seqio.TextLineDataSource(missing), BYTES)
    cache = opened(tmp_path, "task")[0].cache
    assert targets(cache) == [BYTES.encode(text) for text in shown]

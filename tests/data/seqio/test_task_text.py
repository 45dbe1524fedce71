"""A SeqIO task's text is that of its output features after the last step that leaves text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import seqio
import tensorflow as tf

from t5x_like.data.seqio import task_text

FEATURE = seqio.Feature(seqio.ByteVocabulary())


def make_task(name: str, *steps, outputs: Sequence[str] = ("inputs", "targets")) -> seqio.Task:
    def source(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        del shuffle_files, seed
        text = {"train": ["a b", "c"], "validation": ["held out"]}[split]
        return tf.data.Dataset.from_tensor_slices({"inputs": text, "targets": text, "id": text})

    return seqio.Task(
        name,
        source=seqio.FunctionDataSource(source, splits=["train", "validation"]),
        preprocessors=steps,
        output_features=dict.fromkeys(outputs, FEATURE),
    )


def shout(ds: tf.data.Dataset) -> tf.data.Dataset:
    return ds.map(lambda x: {**x, "targets": x["targets"] + "!"})


def test_text_is_that_which_is_tokenised() -> None:
    task = make_task(
        "shouting", shout, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos
    )
    assert list(task_text.texts(task)) == ["a b", "a b!", "c", "c!"]
    assert list(task_text.texts(task, "validation")) == ["held out", "held out!"]


def test_cache_placeholder_changes_nothing() -> None:
    steps = (seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder())
    assert list(task_text.texts(make_task("cached", *steps, outputs=["targets"]))) == ["a b", "c"]


def test_task_that_begins_with_tokens() -> None:
    def tokens(ds: tf.data.Dataset) -> tf.data.Dataset:
        return ds.map(lambda x: {"targets": tf.strings.length(x["id"])[None]})

    task = make_task("numbers", tokens, outputs=["numbers"])
    with pytest.raises(ValueError, match="'numbers' has no text to train a vocabulary on"):
        list(task_text.texts(task))

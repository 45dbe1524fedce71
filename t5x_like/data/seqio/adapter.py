"""Our corpora and objectives as SeqIO tasks, so that every SeqIO tool works on them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_like import objectives
from t5x_like.core.protocols.data import (
    PAIRS,
    PLAIN_TEXT,
    Objective,
    TokenIds,
    Vocabulary,
    names,
)
from t5x_like.data.cache import tokenization
from t5x_like.data.corpora import text_pieces
from t5x_like.data.corpora.corpus import Corpus
from t5x_like.data.corpora.sentences import DEFAULT
from t5x_like.data.extras import require
from t5x_like.data.seqio.objective_step import Features, ObjectiveStep
from t5x_like.data.seqio.task_steps import TWINS
from t5x_like.data.seqio.vocabularies import SeqioVocabulary
from t5x_like.data.task import check_columns, in_words
from t5x_like.objectives.supervised.text_to_text import TextToText

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf
else:
    seqio = require("seqio", "data", purpose="a SeqIO task")
    tf = require("tensorflow", "data", purpose="a SeqIO task")

_STEPS = {name: step for step, name in TWINS}


def register(
    corpus: Corpus,
    vocabulary: Vocabulary,
    *,
    objective: str | Objective,
    name: str | None = None,
    seed: int = 0,
    token_ids: TokenIds | None = None,
    rows: int | None = None,
    sentences: str = DEFAULT,
) -> seqio.Task:
    """Registers `<corpus>.<objective>` with SeqIO, or `<corpus>` for text-to-text.

    Args:
      corpus: the source of the text.
      vocabulary: the vocabulary of all features.
      objective: a preset's name, or an objective: of plain text, or `text_to_text`.
      name: the name of the task, where the objective is not a preset.
      seed: the seed of the noise.
      token_ids: the ids of a cache of this text, for objectives that use the counts of ids; None
        for the ids of the vocabulary.
      rows: the rows of a global batch, for objectives whose rows are carried from batch to batch.
      sentences: the segments of plain text, as for `writer.write_cache`.

    Raises:
      ValueError: the name is taken or cannot be derived, the preset does not exist, the vocabulary
        lacks ids that the objective needs, or the objective reads other columns.
    """
    chosen = objectives.preset(objective) if isinstance(objective, str) else objective
    check_columns(chosen, corpus.columns, f"corpus {corpus.name!r}")
    name = name or _task_name(corpus, objective)
    if isinstance(chosen, TextToText):
        steps = [seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder()]
    elif chosen.reads == PLAIN_TEXT:
        tokenize = functools.partial(
            tokenize_plain_text, vocabulary=vocabulary, sentences=sentences
        )
        ids = token_ids or vocabulary.token_ids
        step = ObjectiveStep(chosen, ids=ids, task=name, seed=seed, rows=rows)
        steps = [tokenize, seqio.CacheDatasetPlaceholder(), step]
    else:
        raise ValueError(
            f"corpus {corpus.name!r} is {in_words(corpus.columns)}: SeqIO tasks are made here of "
            "plain text and of pairs of texts alone"
        )
    specs = chosen.features(chosen.lengths(512))
    steps += [_STEPS[step] for step in chosen.steps]
    return seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(
            functools.partial(_documents, corpus=corpus), splits=corpus.splits
        ),
        preprocessors=steps,
        output_features=_output_features(specs, vocabulary, add_eos=bool(chosen.steps)),
    )


def register_all(corpus: Corpus, vocabulary: Vocabulary, **options: Any) -> list[seqio.Task]:
    """Registers `<corpus>.<objective>` for every preset for which the vocabulary has the ids.

    Args:
      corpus: a corpus of plain text.
      vocabulary: the vocabulary of all features.
      **options: options of `register`: seed, token_ids, rows, sentences.
    """
    ids = options.get("token_ids") or vocabulary.token_ids
    return [
        register(corpus, vocabulary, objective=name, **options)
        for name, objective in objectives.of_plain_text().items()
        if not ids.missing(objective.needs)
    ]


def _output_features(
    specs: Features, vocabulary: Vocabulary, *, add_eos: bool
) -> dict[str, seqio.Feature]:
    """The output features: tokens in the vocabulary; positions, labels and weights as numbers."""
    output_features = {}
    for name, spec in specs.items():
        rank, dtype = len(spec.shape), tf.as_dtype(spec.dtype)
        if name in names(PAIRS) or name == "masked_targets":
            eos = add_eos and vocabulary.token_ids.eos is not None
            output_features[name] = seqio.Feature(
                SeqioVocabulary(vocabulary), add_eos=eos, rank=rank
            )
        elif dtype.is_floating:
            output_features[name] = seqio.ContinuousFeature(dtype=dtype, rank=rank)
        else:
            numbers = seqio.PassThroughVocabulary(np.iinfo(np.int32).max)
            output_features[name] = seqio.Feature(numbers, add_eos=False, dtype=dtype, rank=rank)
    return output_features


def _task_name(corpus: Corpus, objective: str | Objective) -> str:
    if corpus.columns == PAIRS:
        return corpus.name
    if isinstance(objective, str):
        return f"{corpus.name}.{objective}"
    for preset, known in objectives.presets().items():
        if known == objective:
            return f"{corpus.name}.{preset}"
    raise ValueError(
        f"{objective} is not a preset of t5x_like.objectives: pass a name for its task"
    )


def _documents(
    split: str, shuffle_files: bool, seed: int | None = None, *, corpus: Corpus
) -> tf.data.Dataset:
    del shuffle_files, seed  # the order of a corpus is fixed; SeqIO shuffles examples
    spec = {feature: tf.TensorSpec([], tf.string) for feature in corpus.text_columns}
    return tf.data.Dataset.from_generator(
        lambda: text_pieces.join(corpus.documents(split)), output_signature=spec
    )


def tokenize_plain_text(
    ds: tf.data.Dataset, *, vocabulary: Vocabulary, sentences: str = DEFAULT
) -> tf.data.Dataset:
    """Documents to int32 `targets`, tokenised segment by segment as for a cache, and `segments`.

    These are the positions in `targets` at which segments start.
    """

    def encode(text: bytes) -> tuple[np.ndarray, np.ndarray]:
        tokens, segments = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        position = 0
        document = {"targets": text.decode()}
        for record in tokenization.plain_records([document], vocabulary, sentences):
            tokens.append(record.features["targets"])
            segments.append(record.segments + np.int32(position))
            position += len(tokens[-1])
        return np.concatenate(tokens), np.concatenate(segments)

    def convert(document: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        arrays = tf.numpy_function(
            encode, [document["targets"]], [tf.int32, tf.int32], stateful=False
        )
        return {
            name: tf.ensure_shape(values, [None])
            for name, values in zip(("targets", "segments"), arrays, strict=True)
        }

    return ds.map(convert, num_parallel_calls=tf.data.AUTOTUNE)

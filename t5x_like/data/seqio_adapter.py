"""The edge to SeqIO: our objectives as its preprocessors, our corpora as its tasks, and back."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from t5x_like import objectives
from t5x_like.data import cache_text, corpora
from t5x_like.data.corpora import Corpus
from t5x_like.data.extras import require
from t5x_like.data.randomness import example_rng, noise_source
from t5x_like.data.seqio_vocabulary import SeqioVocabulary
from t5x_like.objectives.geometry import ConcatenateAndSplit, PerRecord
from t5x_like.protocols import Objective, TokenIds, Vocabulary

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf
else:
    seqio = require("seqio", "data", purpose="a SeqIO task")
    tf = require("tensorflow", "data", purpose="a SeqIO task")

TWINS: Sequence[tuple[Callable, str]] = (
    (seqio.preprocessors.append_eos, "append_eos"),
    (seqio.preprocessors.append_eos_after_trim, "append_eos_after_trim"),
    (seqio.utils.trim_dataset, "trim"),
)
"""SeqIO's steps that have a twin in `post_cache`, and its name there."""


class ObjectiveStep:
    """An objective as a SeqIO preprocessor: gathers samples, corrupts each.

    Example n of an unshuffled, unsharded first epoch equals example n of the Grain path with the
    same seed. Elsewhere the distribution is the same: SeqIO numbers what it is given, and repeats
    before it concatenates.

    Args:
      objective: its feature names must be output features of the task.
      ids: special ids of the task's vocabulary.
      task: name of the task, part of what the noise is derived from.
      seed: the other part.
    """

    def __init__(self, objective: Objective, *, ids: TokenIds, task: str, seed: int = 0) -> None:
        self.objective = objective
        self.ids = ids
        self.seed = seed
        self.source = noise_source(task, objective)

    def __call__(
        self,
        ds: tf.data.Dataset,
        sequence_length: Mapping[str, int] | None,
        output_features: Mapping[str, seqio.Feature],
    ) -> tf.data.Dataset:
        """Tokenised documents to features; `sequence_length` decides the samples.

        Raises:
          ValueError: no `sequence_length`, or one that does not fit the objective.
        """
        if sequence_length is None:
            raise ValueError(
                f"{self.objective} cuts samples by sequence length: pass sequence_length, such as "
                "{'inputs': 512, 'targets': 114}, to get_dataset"
            )
        samples = gather(ds, self.objective.geometry(sequence_length), names=list(output_features))
        names = list(samples.element_spec)
        dtypes = {name: feature.dtype for name, feature in output_features.items()}

        def corrupt(n: np.int64, *tokens: np.ndarray) -> tuple[np.ndarray, ...]:
            sample = dict(zip(names, tokens, strict=True))
            rng = example_rng(self.seed, self.source, int(n))
            features = self.objective(sample, rng, self.ids)
            return tuple(
                np.asarray(features[name], dtype.as_numpy_dtype) for name, dtype in dtypes.items()
            )

        def convert(n: tf.Tensor, sample: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            features = tf.numpy_function(
                corrupt,
                [n, *(sample[name] for name in names)],
                list(dtypes.values()),
                stateful=False,
            )
            return {
                name: tf.ensure_shape(feature, [None])
                for name, feature in zip(dtypes, features, strict=True)
            }

        return samples.enumerate().map(convert, num_parallel_calls=tf.data.AUTOTUNE)


def gather(
    ds: tf.data.Dataset, geometry: ConcatenateAndSplit | PerRecord, *, names: Sequence[str]
) -> tf.data.Dataset:
    """Documents to samples, as `data.samples` cuts them from a cache.

    Args:
      ds: elements with int features [n], of which `names` are kept where they occur.
      geometry: what makes a sample.
      names: features of a record; a concatenation is of `targets`.

    Raises:
      ValueError: no counterpart of this geometry in tf.data.
    """
    if isinstance(geometry, ConcatenateAndSplit):
        tokens = ds.map(lambda document: document["targets"]).rebatch(geometry.length)
        return tokens.map(lambda sample: {"targets": sample})
    if isinstance(geometry, PerRecord):
        return ds.map(lambda record: {name: record[name] for name in names if name in record})
    raise ValueError(f"{geometry} cannot be cut from a SeqIO dataset; train from a cache instead")


def register(
    corpus: Corpus,
    vocabulary: Vocabulary,
    *,
    objective: str | Objective | None,
    name: str | None = None,
    seed: int = 0,
) -> seqio.Task:
    """Registers `<corpus>.<objective>` with SeqIO, or `<corpus>` for text-to-text.

    Args:
      corpus: where the text comes from.
      vocabulary: of all its features.
      objective: a preset's name or an objective; None for text-to-text, which needs none.
      name: of the task, where the objective is no preset.
      seed: of the noise.

    Raises:
      ValueError: the name is taken or cannot be derived, the preset does not exist, or the
        corpus does not go with it: plain text needs an objective, text-to-text takes none.
    """
    plain = corpus.features == corpora.TARGETS
    if plain != (objective is not None):
        known = ", ".join(sorted(objectives.presets()))
        raise ValueError(
            f"corpus {corpus.name!r} has {' and '.join(corpus.features)}: "
            + (f"name an objective ({known})" if plain else "it takes no objective")
        )
    name = name or _task_name(corpus, objective)
    made = objectives.preset(objective) if isinstance(objective, str) else objective
    tokenize = (
        functools.partial(tokenize_plain_text, vocabulary=vocabulary)
        if plain
        else seqio.preprocessors.tokenize
    )
    steps = [tokenize, seqio.CacheDatasetPlaceholder()]
    if made is not None:
        steps.append(ObjectiveStep(made, ids=vocabulary.token_ids, task=name, seed=seed))
    steps.append(seqio.preprocessors.append_eos_after_trim)
    feature = seqio.Feature(
        SeqioVocabulary(vocabulary), add_eos=vocabulary.token_ids.eos is not None
    )
    return seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(
            functools.partial(_documents, corpus=corpus), splits=corpus.splits
        ),
        preprocessors=steps,
        output_features={"inputs": feature, "targets": feature},
    )


def _task_name(corpus: Corpus, objective: str | Objective | None) -> str:
    if objective is None:
        return corpus.name
    if isinstance(objective, str):
        return f"{corpus.name}.{objective}"
    for preset, known in objectives.presets().items():
        if known == objective:
            return f"{corpus.name}.{preset}"
    raise ValueError(f"{objective} is no preset of t5x_like.objectives: pass a name for its task")


def _documents(
    split: str, shuffle_files: bool, seed: int | None = None, *, corpus: Corpus
) -> tf.data.Dataset:
    del shuffle_files, seed  # the order of a corpus is fixed; SeqIO shuffles examples
    spec = {feature: tf.TensorSpec([], tf.string) for feature in corpus.features}
    return tf.data.Dataset.from_generator(
        functools.partial(corpus.documents, split), output_signature=spec
    )


def tokenize_plain_text(ds: tf.data.Dataset, *, vocabulary: Vocabulary) -> tf.data.Dataset:
    """Documents to int32 `targets`, segment by segment as the cache tokenises them."""

    def encode(text: bytes) -> np.ndarray:
        records = cache_text.plain_records([{"targets": text.decode()}], vocabulary)
        pieces = [record.features["targets"] for record in records]
        return np.concatenate([np.zeros(0, np.int32), *pieces])

    def convert(document: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids = tf.numpy_function(encode, [document["targets"]], tf.int32, stateful=False)
        return {"targets": tf.ensure_shape(ids, [None])}

    return ds.map(convert, num_parallel_calls=tf.data.AUTOTUNE)


@dataclasses.dataclass(frozen=True)
class PostCache:
    """What a SeqIO task does to a cached record, in terms of this package.

    Attributes:
      objective: ours, if it has one; runs first.
      steps: names in `post_cache.STEPS`, in order; the final trimming goes without saying.
      refused: the first later step that has no counterpart, None if the task trains as it is.
      cached_steps: how many of `task.preprocessors` run before the cache.
      eos: the id to append to each feature that takes one.
    """

    objective: Objective | None
    steps: tuple[str, ...]
    refused: str | None
    cached_steps: int
    eos: Mapping[str, int]


def describe(task: seqio.Task) -> PostCache:
    """Reads the steps of a task after its `CacheDatasetPlaceholder`.

    Recognised are an `ObjectiveStep`, if it comes first, and the functions of `TWINS` themselves;
    a partial application of one that binds arguments is another step.

    Without a placeholder, the cache holds everything before the recognised steps at the end,
    provided none of it draws random numbers or looks at the sequence length: SeqIO passes both in
    by argument name. If one does, it and what follows count as later steps.
    """
    steps = list(task.preprocessors)
    marks = [isinstance(step, seqio.CacheDatasetPlaceholder) for step in steps]
    cached = marks.index(True) if any(marks) else _cache_point(steps)
    objective: Objective | None = None
    names: list[str] = []
    refused = None
    for step in steps[cached + any(marks) :]:
        twin = _twin(step)
        if isinstance(step, ObjectiveStep) and objective is None and not names:
            objective = step.objective
        elif twin:
            names.append(twin)
        else:
            refused = _step_name(step)
            break
    eos = {
        name: feature.vocabulary.eos_id
        for name, feature in task.output_features.items()
        if feature.add_eos
    }
    return PostCache(objective, tuple(names), refused, cached, eos)


def before_cache(task: seqio.Task, ds: tf.data.Dataset) -> tf.data.Dataset:
    """Runs the steps of `task` that precede its cache point, with or without a placeholder."""
    with seqio.utils.map_seed_manager(0):
        for step in task.preprocessors[: describe(task).cached_steps]:
            ds = seqio.utils.add_kwargs_to_transform(
                step, sequence_length=None, output_features=task.output_features
            )(ds)
    return ds


def _cache_point(steps: Sequence[Callable]) -> int:
    """Where the cache of a task without a placeholder lies: the index of its first later step."""
    point = len(steps)
    while point and (isinstance(steps[point - 1], ObjectiveStep) or _twin(steps[point - 1])):
        point -= 1
    at_run_time = (i for i, step in enumerate(steps) if _is_run_time(step))
    return min(point, next(at_run_time, point))


def _is_run_time(step: Callable) -> bool:
    """Depends on what a run decides: the sequence length or a seed."""
    if dataclasses.is_dataclass(step):
        arguments = {field.name for field in dataclasses.fields(step)}
    else:
        arguments = set(inspect.signature(step).parameters)
    if isinstance(step, functools.partial):
        arguments -= step.keywords.keys()
    return not arguments.isdisjoint({"sequence_length", "seed", "seeds"})


def _twin(step: Callable) -> str | None:
    """Its name in `post_cache`, also through an empty partial application or gin's wrapper."""
    while True:
        if isinstance(step, functools.partial) and not step.args and not step.keywords:
            step = step.func
        elif getattr(step, "__globals__", {}).get("__name__") == "gin.config":
            step = inspect.unwrap(step)
        else:
            return next((name for function, name in TWINS if function is step), None)


def _step_name(step: Callable) -> str:
    while isinstance(step, functools.partial):
        step = step.func
    named = step if hasattr(step, "__qualname__") else type(step)
    return f"{named.__module__}.{named.__qualname__}"

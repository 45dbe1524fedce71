"""A writer of the cache of a SeqIO task: the output of its steps up to its cache point or its end.

One shard of the source, or one epoch of a task that is run to its end, becomes one shard of the
cache. A killed writer resumes with the shards that it had not finished.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_like.core import progress as bars
from t5x_like.core.protocols.data import Vocabulary
from t5x_like.data.cache.format import CacheError, Manifest, token_dtype
from t5x_like.data.cache.lock import sole_writer
from t5x_like.data.cache.record_codec import FLOAT
from t5x_like.data.cache.shards import ShardPlan, finalise
from t5x_like.data.cache.tokenization import Record
from t5x_like.data.cache.workers import default_workers, spread
from t5x_like.data.cache.writer import keep_or_clear, shard_plan
from t5x_like.data.extras import require
from t5x_like.data.seqio import task_steps
from t5x_like.data.seqio.vocabularies import from_seqio
from t5x_like.data.user_modules import import_module
from t5x_like.vocabularies.passthrough import PassThroughVocabulary

if TYPE_CHECKING:
    import seqio
    import tensorflow as tf
else:
    seqio = require("seqio", "data", purpose="a SeqIO task")
    tf = require("tensorflow", "data", purpose="a SeqIO task")

_SPLITS = ("train", "validation")
_TEXT = ("inputs", "targets")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclasses.dataclass(frozen=True)
class _Part:
    """The source of shard `number` among the `of` shards of a split."""

    split: str
    number: int
    of: int


@dataclasses.dataclass(frozen=True)
class ToCachePoint:
    """Runs the steps that run for a task's cache, on one shard of its source.

    Attributes:
      lengths: the feature lengths, where a step depends on them.
    """

    lengths: Mapping[str, int] | None = None

    def parts(self, task: seqio.Task, split: str) -> list[_Part]:
        """One part for each file or shard of the source."""
        shards = len(_source(task, split).list_shards(split))
        if not shards:
            raise CacheError(f"task {task.name!r}: its source has no files for split {split!r}")
        return [_Part(split, i, shards) for i in range(shards)]

    def run(self, task: seqio.Task, part: _Part) -> tf.data.Dataset:
        """The records of a part, in order."""
        shard = seqio.ShardInfo(part.number, part.of) if part.of > 1 else None
        source = _source(task, part.split)
        examples = source.get_dataset(split=part.split, shuffle=False, shard_info=shard)
        offline = source is not task.source
        return task_steps.before_cache(task, examples, lengths=self.lengths, offline=offline)

    @property
    def recipe(self) -> Mapping[str, Any] | None:
        """The property `materialized` of the manifest."""
        return self.lengths and dataclasses.asdict(ToTheEnd(self.lengths, seed=0, epochs=1))


def _source(task: seqio.Task, split: str) -> seqio.DataSource:
    """The source of a split: the cache that `seqio_cache_tasks` made, or the task's own source.

    SeqIO looks for such caches in the directories of `seqio.add_global_cache_dirs`.
    """
    return task._get_cached_source(split) if is_cached(task) else task.source


def drawing_step(task: seqio.Task, lengths: Mapping[str, int] | None) -> str | None:
    """The first step that would run for the cache though it draws numbers for each epoch; or None.

    Raises:
      CacheError: the task has no split to cache.
    """
    split = _cached_splits(task)[0]
    source = _source(task, split)
    examples = source.get_dataset(split=split, shuffle=False)
    offline = source is not task.source
    return task_steps.drawing_step(task, examples, lengths=lengths, offline=offline)


def is_cached(task: seqio.Task) -> bool:
    """Whether SeqIO has an offline cache of the task."""
    return bool(task.supports_caching and task.cache_dir)


@dataclasses.dataclass(frozen=True)
class ToTheEnd:
    """Runs a whole task for given lengths, once for each epoch. Its examples are then fixed."""

    lengths: Mapping[str, int]
    seed: int
    epochs: int

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The property `materialized` of the manifest."""
        return dataclasses.asdict(self)

    def parts(self, task: seqio.Task, split: str) -> list[_Part]:
        """One part for each epoch of the training split; one for a held-out split."""
        del task
        epochs = self.epochs if split == "train" else 1
        return [_Part(split, i, epochs) for i in range(epochs)]

    def run(self, task: seqio.Task, part: _Part) -> tf.data.Dataset:
        """The examples of an epoch, in order."""
        seed = self.seed + part.number
        # Steps with their own seeds derive them from TensorFlow's global seed.
        tf.random.set_seed(seed)
        return task.get_dataset(
            dict(self.lengths), split=part.split, shuffle=False, seed=seed, try_in_mem_cache=False
        )


@dataclasses.dataclass(frozen=True)
class _Write:
    """The function that a worker applies to a part. It returns the number of records written."""

    plan: ShardPlan
    extent: ToCachePoint | ToTheEnd
    find_task: Callable[[], seqio.Task]
    progress: bool

    def __call__(self, part: _Part) -> int:
        if self.plan.finished(part.split, part.number):
            return 0
        task = self.find_task()
        digest = hashlib.sha256()
        records = _records(self.extent.run(task, part), task, plan=self.plan, digest=digest)
        title = f"{task.name} {part.split} {part.number + 1}/{part.of}"
        bar = bars.bar(records, desc=title, unit=" records", shown=self.progress)
        return self.plan.write(part.split, part.number, records=bar, content=digest.hexdigest)


def write_cache_from_task(
    directory: Path | str,
    task: seqio.Task,
    vocabulary: Vocabulary,
    *,
    module: str | None = None,
    workers: int | None = None,
    progress: bool = True,
    overwrite: bool = False,
    lengths: Mapping[str, int] | None = None,
    materialize: ToTheEnd | None = None,
) -> Manifest:
    """Writes the cache of a SeqIO task's splits 'train' and 'validation'.

    Args:
      directory: the directory of the cache, made if missing. A complete cache of this task stays.
      task: the task, whose output features must be integers (or loss weights) with one axis each.
      vocabulary: the vocabulary to save in the directory: `vocabularies.from_seqio` of that of the
        targets.
      module: the module or `.py` file that registers the task, for worker processes to import;
        None uses this process alone.
      workers: the number of processes; None for one on each core. A source of one shard needs one.
      progress: whether to show a bar on standard error.
      overwrite: whether to replace a complete cache.
      lengths: the feature lengths, where a step that runs for the cache depends on them.
      materialize: runs the task to its end, post-cache steps included; None stops at its cache
        point.

    Raises:
      CacheError: the directory cannot be written, or holds the cache of something else; the
        task's features are not of a kind that can be cached; or there is nothing to train on.
    """
    directory = Path(directory)
    extent = materialize or ToCachePoint(lengths)
    parts = [part for split in _cached_splits(task) for part in extent.parts(task, split)]
    manifest = _manifest(task, vocabulary, extent=extent, part=parts[0])
    with sole_writer(directory):
        if complete := keep_or_clear(directory, manifest, overwrite=overwrite):
            return complete
        source = f"{manifest.corpus_fingerprint} {len(parts)}"
        plan = dataclasses.replace(
            shard_plan(directory, manifest, source=source),
            vocab_size=_ids(task, vocabulary, manifest.features),
        )
        find_task: Callable[[], seqio.Task] = lambda: task  # noqa: E731
        if module and any(part.of > 1 for part in parts):
            workers = workers or default_workers()
            folders = tuple(seqio.utils.get_global_cache_dirs())
            find_task = functools.partial(_find_registered, task.name, module, folders)
        else:
            workers = 1
        write = _Write(plan, extent, find_task, progress and workers == 1)
        shown = progress and workers > 1
        bar = bars.bar(desc=task.name, total=len(parts), unit=" shards", shown=shown)
        with bar:
            for _ in spread(write, iter(parts), workers=workers):
                bar.update()
        shards = collections.Counter(part.split for part in parts)
        return finalise(plan, manifest, vocabulary, shards=shards, skipped={})


def _manifest(
    task: seqio.Task, vocabulary: Vocabulary, *, extent: ToCachePoint | ToTheEnd, part: _Part
) -> Manifest:
    """The manifest before the shards are known; `part` shows which features there are."""
    lengths = extent.lengths if isinstance(extent, ToCachePoint) else None
    return Manifest(
        corpus=task.name,
        corpus_fingerprint=task_fingerprint(task, lengths),
        vocabulary=vocabulary.to_json(),
        vocabulary_fingerprint=vocabulary.fingerprint,
        token_ids=vocabulary.token_ids,
        features=_features(extent.run(task, part).element_spec, task, vocabulary),
        seqio_task=True,
        materialized=extent.recipe,
    )


def _cached_splits(task: seqio.Task) -> list[str]:
    """The splits to cache. A task that is only evaluated has no 'train'."""
    splits = [split for split in _SPLITS if split in task.splits]
    if not splits:
        known = ", ".join(task.splits)
        raise CacheError(f"task {task.name!r} has no split 'train' or 'validation', only {known}")
    return splits


def _find_registered(name: str, module: str, cache_dirs: Sequence[str]) -> seqio.Task:
    import_module(module)
    seqio.set_global_cache_dirs(list(cache_dirs))
    return seqio.TaskRegistry.get(name)


def _ids(task: seqio.Task, vocabulary: Vocabulary, names: Iterable[str]) -> int:
    """The number of ids of the features `names`, which exist at the cache point."""
    outputs = task.output_features
    sizes = [outputs[name].vocabulary.vocab_size for name in names if name in outputs]
    return max([vocabulary.vocab_size, *sizes])


def _features(
    spec: Mapping[str, tf.TensorSpec], task: seqio.Task, vocabulary: Vocabulary
) -> dict[str, str]:
    """The stored dtypes of the output features and of their loss weights.

    In a task with an objective of ours, the text is `targets`, whatever the output features.
    Features of another kind, such as the score of a regression, are left out, because no row has
    them.

    Raises:
      CacheError: inputs or targets are not integers with one axis.
    """
    stored = {}
    outputs = dict.fromkeys([*task.output_features, "targets"])
    for name in [*outputs, *(f"{output}_loss_weights" for output in outputs)]:
        if name not in spec:
            continue
        dtype, rank = spec[name].dtype, spec[name].shape.rank
        if rank not in (1, None) or not (dtype.is_integer or dtype.is_floating):
            if name not in _TEXT:
                print(
                    f"task {task.name!r}: feature {name!r}, {dtype.name} with {rank} axes, is left "
                    "out: rows have only integers or weights with one axis",
                    file=sys.stderr,
                )
                continue
            raise CacheError(
                f"task {task.name!r}: feature {name!r} is {dtype.name} with {rank} axes at the "
                "cache point; only integers or weights with one axis can be cached. Tokenise "
                "before the cache placeholder"
            )
        stored[name] = FLOAT if dtype.is_floating else token_dtype(_ids(task, vocabulary, spec))
    if "targets" not in stored:
        raise CacheError(
            f"task {task.name!r} has no feature 'targets' at its cache point, only "
            f"{', '.join(spec)}"
        )
    return stored


def _records(
    examples: tf.data.Dataset, task: seqio.Task, *, plan: ShardPlan, digest: hashlib._Hash
) -> Iterator[Record]:
    """The records of examples, whose values also update `digest`.

    Our own tokenising step adds `segments`, the positions at which segments of the text start.
    """
    no_segments = np.zeros(0, np.int32)
    for example in examples.as_numpy_iterator():
        features = {}
        for name, dtype in plan.features.items():
            values = np.asarray(example[name])
            if values.ndim != 1:
                raise CacheError(
                    f"task {task.name!r}: feature {name!r} of an example has shape "
                    f"{values.shape}; only features with one axis can be cached"
                )
            features[name] = values.astype(np.float32 if dtype == FLOAT else np.int64)
            digest.update(f"{name} {len(values)} ".encode())
            digest.update(features[name].tobytes())
        yield Record(features, example.get("segments", no_segments), True)


def task_fingerprint(
    task: seqio.Task,
    lengths: Mapping[str, int] | None = None,
    *,
    splits: Sequence[str] = _SPLITS,
    every_step: bool = False,
) -> str:
    """A hex digest of a task's source, files and steps with their code, quick to compute.

    Args:
      task: the task.
      lengths: the feature lengths, where a step depends on them.
      splits: the splits whose files count.
      every_step: whether all steps count, and not only those before the cache.
    """
    steps = task.preprocessors
    if not every_step:
        steps = steps[: task_steps.describe(task).cached_steps]
    shards = [
        (str(shard), _size(str(shard)))
        for split in splits
        if split in task.splits
        for shard in _source(task, split).list_shards(split)
    ]
    source = [f"{name}={_identity(value)}" for name, value in sorted(vars(task.source).items())]
    outputs = [
        f"{name} {feature.dtype} {ids_fingerprint(feature.vocabulary)}"
        for name, feature in task.output_features.items()
    ]
    whole = [task.name, type(task.source).__qualname__, source, shards, outputs]
    cached = [_identity(step) for step in steps]
    known = [whole, cached, sorted(lengths.items())] if lengths else [whole, cached]
    return hashlib.sha256(repr(known).encode()).hexdigest()


def ids_fingerprint(vocabulary: seqio.Vocabulary) -> str:
    """A text that identifies a vocabulary's ids, the same in every process and for every path."""
    ours = from_seqio(vocabulary)
    if not isinstance(ours, PassThroughVocabulary):
        return ours.fingerprint
    model = getattr(vocabulary, "sp_model", None) or b""
    return f"{ours.fingerprint} {hashlib.sha256(model).hexdigest()} {_identity(vocabulary)}"


def _size(path: str) -> int:
    return Path(path).stat().st_size if Path(path).is_file() else -1


def _identity(value: Any) -> str:
    """A text that identifies the behaviour of a source or step: its code, arguments and fields."""
    if isinstance(value, functools.partial):
        arguments = [_identity(argument) for argument in value.args]
        named = [
            f"{name}={_identity(argument)}" for name, argument in sorted(value.keywords.items())
        ]
        return f"{_identity(value.func)}({', '.join([*arguments, *named])})"
    if inspect.isroutine(value) or inspect.isclass(value):
        name = f"{value.__module__}.{value.__qualname__}"
        try:
            code = inspect.getsource(value)
        except (OSError, TypeError):
            return name
        return f"{name} {hashlib.sha256(code.encode()).hexdigest()}"
    fingerprint = getattr(value, "fingerprint", None)
    if fingerprint is not None:
        return str(fingerprint() if callable(fingerprint) else fingerprint)
    return _ADDRESS.sub("", repr(value))
